package picture

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
)

// Mark is a point of a scatter plot.
type Mark struct {
	Point
	Name   string
	Strong bool  // drawn dark, with its name next to it
	Hue    uint8 // of a strong one, below [Hues]; 0: 1
}

// Scatter is a picture of values on two linear axes.
type Scatter struct {
	Title string
	XName string
	YName string
	Marks []Mark
}

// Dimensions of names next to marks in pixels.
const (
	nameHigh = 13
	nameWide = 7 // of one character
)

// WriteSVG draws a circle for each value. Every circle has its name as a tooltip.
func (s *Scatter) WriteSVG(w io.Writer) error {
	out := bufio.NewWriter(w)
	begin(out, marginLeft+plotWide+plotRight, marginTop+plotHigh+2*axisHigh, s.Title)
	var xs, ys []float64
	for _, m := range s.Marks {
		xs, ys = append(xs, m.X), append(ys, m.Y)
	}
	x, y := scaleOf(xs), scaleOf(ys)
	s.frame(out, x, y)
	var names names
	for _, strong := range []bool{false, true} { // strong marks are above the others
		for _, m := range s.Marks {
			if m.Strong != strong {
				continue
			}
			ink, cx, cy := "#aaa", marginLeft+plotWide*x.at(m.X), marginTop+plotHigh*(1-y.at(m.Y))
			if m.Strong {
				ink = fill(max(m.Hue, 1))
				left, top := names.place(cx+8, cy+4, m.Name)
				fmt.Fprintf(out, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", left, top, ink, escape(m.Name))
			}
			fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s</title></circle>`+"\n", cx, cy, ink, escape(m.Name))
		}
	}
	out.WriteString("</svg>\n") // Flush returns the error
	return out.Flush()
}

// scale is a linear axis from one multiple of its step to another.
type scale struct{ from, to, step float64 }

// scaleOf returns the axis of some values, with at most ten steps.
func scaleOf(values []float64) scale {
	if len(values) == 0 {
		return scale{0, 1, 1}
	}
	from, to := values[0], values[0]
	for _, v := range values {
		from, to = min(from, v), max(to, v)
	}
	step := 1.0
	if to > from {
		step = math.Pow(10, math.Floor(math.Log10(to-from)))
		for _, part := range []float64{0.2, 0.5} {
			if (to-from)/(part*step) <= 6 {
				step *= part
				break
			}
		}
	}
	s := scale{step * math.Floor(from/step), step * math.Ceil(to/step), step}
	if s.from == s.to {
		s.to += step
	}
	return s
}

// at returns the position of a value on the axis, from 0 to 1.
func (s scale) at(v float64) float64 { return (v - s.from) / (s.to - s.from) }

// ticks returns the multiples of the step.
func (s scale) ticks() (all []float64) {
	for i := 0.0; s.from+i*s.step <= s.to+s.step/2; i++ {
		all = append(all, round(s.from+i*s.step))
	}
	return all
}

// frame draws the axes.
func (s *Scatter) frame(out *bufio.Writer, x, y scale) {
	fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" fill="#f3f3f3"/>`+"\n", marginLeft, marginTop, plotWide, plotHigh)
	for _, v := range y.ticks() {
		at := marginTop + plotHigh*(1-y.at(v))
		fmt.Fprintf(out, `<path stroke="#ccc" d="M%d %.1fh%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			marginLeft, at, plotWide, marginLeft-6, at+4, strconv.FormatFloat(v, 'f', -1, 64))
	}
	for _, v := range x.ticks() {
		at := marginLeft + plotWide*x.at(v)
		fmt.Fprintf(out, `<path stroke="#ccc" d="M%.1f %dv%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			at, marginTop, plotHigh, at, marginTop+plotHigh+18, strconv.FormatFloat(v, 'f', -1, 64))
	}
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", marginLeft+plotWide/2, marginTop+plotHigh+axisHigh+14, escape(s.XName))
	fmt.Fprintf(out, `<text x="%d" y="%d">%s</text>`+"\n", marginLeft+6, marginTop+16, escape(s.YName))
}

// names holds the rectangles of the names that are drawn.
type names []struct{ left, top, width float64 }

// place returns the position of a name: as wanted, or as little below as keeps it off the others.
// O(names²).
func (n *names) place(left, top float64, name string) (float64, float64) {
	width := float64(nameWide * len(name))
	for moved := true; moved; {
		moved = false
		for _, o := range *n {
			if left < o.left+o.width && o.left < left+width && top < o.top+nameHigh && o.top < top+nameHigh {
				top, moved = o.top+nameHigh, true
			}
		}
	}
	*n = append(*n, struct{ left, top, width float64 }{left, top, width})
	return left, top
}
