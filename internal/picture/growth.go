package picture

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
)

// Point is a value at a size; both are above 0.
type Point struct{ X, Y float64 }

// Line is one quantity as a function of size.
type Line struct {
	Name   string
	Points []Point // by X
}

// Growth is a picture of quantities against a size. Both axes are logarithmic, so that a power of
// the size is a straight line.
type Growth struct {
	Title  string
	XName  string
	YName  string
	Lines  []Line
	Figure string // format of values of YName for display: %g ms
}

// Dimensions of the picture in pixels.
const (
	plotWide  = 620
	plotHigh  = 320
	plotRight = 170 // names of the lines
)

// WriteSVG draws one line for each quantity, a point for each value and, dotted, proportional
// growth for comparison. It omits values of 0 or less.
func (g *Growth) WriteSVG(w io.Writer) error {
	out := bufio.NewWriter(w)
	begin(out, marginLeft+plotWide+plotRight, marginTop+plotHigh+2*axisHigh, g.Title)
	x, y := axis{1, 10}, axis{1, 10}
	first := true
	for _, l := range g.Lines {
		for _, p := range l.Points {
			if p.X <= 0 || p.Y <= 0 {
				continue
			}
			if first {
				x, y, first = axis{p.X, p.X}, axis{p.Y, p.Y}, false
			}
			x, y = x.with(p.X), y.with(p.Y)
		}
	}
	plot := plotted{x.padded(), y.decades()}
	g.frame(out, plot)
	for i, l := range g.Lines {
		plot.line(out, &l, i)
	}
	out.WriteString("</svg>\n") // Flush returns the error
	return out.Flush()
}

// axis holds the smallest and the largest value.
type axis struct{ from, to float64 }

func (a axis) with(v float64) axis { return axis{min(a.from, v), max(a.to, v)} }

// padded adds space at both ends.
func (a axis) padded() axis {
	const margin = 1.12
	return axis{a.from / margin, a.to * margin}
}

// decades extends the axis to powers of ten.
func (a axis) decades() axis {
	from, to := math.Pow(10, math.Floor(math.Log10(a.from))), math.Pow(10, math.Ceil(math.Log10(a.to)))
	if from == to {
		to *= 10
	}
	return axis{from, to}
}

// at returns the position of a value on the axis, from 0 to 1.
func (a axis) at(v float64) float64 { return math.Log(v/a.from) / math.Log(a.to/a.from) }

// plotted is the area of the values.
type plotted struct{ x, y axis }

func (p plotted) place(v Point) (x, y float64) {
	return marginLeft + plotWide*p.x.at(v.X), marginTop + plotHigh*(1-p.y.at(v.Y))
}

// frame draws the axes: y in powers of ten, x at each measured size.
func (g *Growth) frame(out *bufio.Writer, p plotted) {
	fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" fill="#f3f3f3"/>`+"\n", marginLeft, marginTop, plotWide, plotHigh)
	for v := p.y.from; v <= p.y.to*1.01; v *= 10 {
		_, y := p.place(Point{p.x.from, v})
		fmt.Fprintf(out, `<path stroke="#ccc" d="M%d %.1fh%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			marginLeft, y, plotWide, marginLeft-6, y+4, escape(fmt.Sprintf(g.Figure, round(v))))
	}
	labelled := map[float64]bool{}
	for _, l := range g.Lines {
		for _, v := range l.Points {
			if v.X <= 0 || v.Y <= 0 || labelled[v.X] {
				continue
			}
			labelled[v.X] = true
			x, _ := p.place(Point{v.X, p.y.from})
			fmt.Fprintf(out, `<path stroke="#999" d="M%.1f %dv4"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
				x, marginTop+plotHigh, x, marginTop+plotHigh+18, strconv.FormatFloat(v.X, 'f', -1, 64))
		}
	}
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", marginLeft+plotWide/2, marginTop+plotHigh+axisHigh+14, escape(g.XName))
	fmt.Fprintf(out, `<text x="%d" y="%d">%s</text>`+"\n", marginLeft+6, marginTop+16, escape(g.YName))
}

// round removes rounding errors from a power of ten.
func round(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil { // a formatted number
		return v
	}
	return r
}

// line draws a quantity and, from its first point, proportional growth.
func (p plotted) line(out *bufio.Writer, l *Line, n int) {
	ink := fill(uint8(1 + n*5%Hues))
	path := ""
	var first, last Point
	for _, v := range l.Points {
		if v.X <= 0 || v.Y <= 0 {
			continue
		}
		x, y := p.place(v)
		step := "L"
		if path == "" {
			step, first = "M", v
		}
		path += fmt.Sprintf("%s%.1f %.1f", step, x, y)
		fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x, y, ink)
		last = v
	}
	if path == "" {
		return
	}
	fmt.Fprintf(out, `<path fill="none" stroke-width="2" stroke="%s" d="%s"/>`+"\n", ink, path)
	x, y := p.place(last)
	fmt.Fprintf(out, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", x+8, y+4, ink, escape(l.Name))
	end := Point{last.X, min(first.Y*last.X/first.X, p.y.to)}
	end.X = first.X * end.Y / first.Y
	x0, y0 := p.place(first)
	x1, y1 := p.place(end)
	fmt.Fprintf(out, `<path stroke="%s" stroke-dasharray="1 4" d="M%.1f %.1fL%.1f %.1f"/>`+"\n", ink, x0, y0, x1, y1)
}
