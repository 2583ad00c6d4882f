package picture

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Dimensions of the picture in pixels. A column is one instant; a row of the chart is some GPUs or
// CPUs.
const (
	chartWide   = 1200
	chartHigh   = 400 // maximum; fewer rows are drawn higher
	usageHigh   = 120
	marginLeft  = 70
	marginTop   = 34
	marginGap   = 30
	marginRight = 16
	axisHigh    = 26
)

// Hues is the number of colours of bars.
const Hues = 12

// Bar is one job on adjacent lanes.
type Bar struct {
	From, To    cluster.Instant
	First, Last int32 // lanes from the top; Last is excluded
	Hue         uint8 // below Hues
	Pale        bool  // not started
}

// Jobs is a picture of jobs on GPUs or CPUs over time.
type Jobs struct {
	Title    string
	Unit     string // name of a lane in the plural: GPUs
	Usage    string // title of the curve below
	From, To cluster.Instant
	Lanes    int32
	Capacity float64 // number of lanes of the machine
	Bars     []Bar
}

// HueOf returns one hue for each name, which nearly always differs from its neighbour's.
func HueOf(names ...string) uint8 {
	h := fnv.New32a()
	for _, n := range names {
		h.Write([]byte(n))
	}
	return uint8(h.Sum32() % Hues)
}

// WriteSVG draws the jobs, and below them the used part of the machine. Of all jobs that meet in a
// pixel it draws the largest, so that the size of the picture is bounded. O(bars × their rows).
func (j *Jobs) WriteSVG(w io.Writer) error {
	p := &page{Jobs: j}
	p.Lanes = max(p.Lanes, 1)
	p.To = max(p.To, p.From.Add(time.Second))
	p.rows = int(min(p.Lanes, chartHigh))
	p.rowHigh = max(1, min(24, chartHigh/p.rows))
	p.perPixel = max(p.To.Sub(p.From)/chartWide, 1)
	p.lanePerRow = float64(p.Lanes) / float64(p.rows)
	out := bufio.NewWriter(w)
	begin(out, marginLeft+chartWide+marginRight, marginTop+p.rows*p.rowHigh+marginGap+usageHigh+axisHigh, j.Title)
	p.chart(out)
	p.usage(out)
	out.WriteString("</svg>\n") // Flush returns the error
	return out.Flush()
}

// begin writes the head of a picture: background and title.
func begin(out *bufio.Writer, wide, high int, title string) {
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", wide, high, wide, high)
	fmt.Fprintf(out, `<rect width="%d" height="%d" fill="white"/>`+"\n", wide, high)
	fmt.Fprintf(out, `<text x="%d" y="20" font-size="14">%s</text>`+"\n", marginLeft, escape(title))
}

// page is a picture being drawn.
type page struct {
	*Jobs
	rows       int
	rowHigh    int
	perPixel   time.Duration
	lanePerRow float64
}

// column returns the pixel of an instant, and the fraction of the pixel before it.
func (p *page) column(at cluster.Instant) (int, float64) {
	x := float64(at-p.From) / float64(p.perPixel)
	n := min(max(int(x), 0), chartWide-1)
	return n, min(max(x-float64(n), 0), 1)
}

// grid holds for each pixel of the chart the ink with the largest part, from 1, and that part.
type grid struct {
	ink  [][chartWide]uint8
	most [][chartWide]float32
}

func (p *page) raster() *grid {
	g := &grid{make([][chartWide]uint8, p.rows), make([][chartWide]float32, p.rows)}
	for _, b := range p.Bars {
		c0, before := p.column(b.From)
		c1, after := p.column(b.To)
		r0, r1 := int(float64(b.First)/p.lanePerRow), int(float64(b.Last-1)/p.lanePerRow)
		for row := r0; row <= min(r1, p.rows-1); row++ {
			for c := c0; c <= c1; c++ {
				part := float32(1)
				if c == c0 {
					part -= float32(before)
				}
				if c == c1 {
					part -= float32(1 - after)
				}
				if part > g.most[row][c] {
					g.most[row][c], g.ink[row][c] = part, ink(&b)
				}
			}
		}
	}
	return g
}

// ink returns the hue of a bar from 1 on; started jobs come first.
func ink(b *Bar) uint8 {
	if b.Pale {
		return 1 + Hues + b.Hue%Hues
	}
	return 1 + b.Hue%Hues
}

// fill returns an ink as an SVG colour. Adjacent hues also differ in lightness.
func fill(ink uint8) string {
	hue, light := int(ink-1)%Hues, 45
	if ink > Hues {
		light = 72
	}
	return fmt.Sprintf("hsl(%d,60%%,%d%%)", hue*360/Hues, light+10*(hue%2))
}

// chart draws the jobs: one path of horizontal bars for each ink.
func (p *page) chart(out *bufio.Writer) {
	g := p.raster()
	fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" fill="#f3f3f3"/>`+"\n", marginLeft, marginTop, chartWide, p.rows*p.rowHigh)
	used := [2*Hues + 1]bool{}
	for i := range p.Bars {
		used[ink(&p.Bars[i])] = true
	}
	for colour := range used {
		if !used[colour] {
			continue
		}
		fmt.Fprintf(out, `<path fill="%s" d="`, fill(uint8(colour)))
		for row := range p.rows {
			line := &g.ink[row]
			for c := 0; c < chartWide; {
				run := c
				for run < chartWide && line[run] == uint8(colour) {
					run++
				}
				if run > c {
					fmt.Fprintf(out, "M%d %dh%dv%dh-%dz", marginLeft+c, marginTop+row*p.rowHigh, run-c, p.rowHigh, run-c)
				}
				c = max(run, c+1)
			}
		}
		out.WriteString("\"/>\n")
	}
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="end">%d %s</text>`+"\n", marginLeft-6, marginTop+10, p.Lanes, p.Unit)
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="end">0</text>`+"\n", marginLeft-6, marginTop+p.rows*p.rowHigh)
}

// usage draws the used part of the machine over time.
func (p *page) usage(out *bufio.Writer) {
	var share [chartWide]float64
	for _, b := range p.Bars {
		c0, before := p.column(b.From)
		c1, after := p.column(b.To)
		n := float64(b.Last-b.First) / p.Capacity
		if c0 == c1 {
			share[c0] += n * (after - before)
			continue
		}
		share[c0] += n * (1 - before)
		for c := c0 + 1; c < c1; c++ {
			share[c] += n
		}
		share[c1] += n * after
	}
	top := marginTop + p.rows*p.rowHigh + marginGap
	fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" fill="#f3f3f3"/>`+"\n", marginLeft, top, chartWide, usageHigh)
	fmt.Fprintf(out, `<path fill="#3b6ea5" d="M%d %d`, marginLeft, top+usageHigh)
	for c, s := range share {
		fmt.Fprintf(out, "L%d %s", marginLeft+c, strconv.FormatFloat(float64(top)+usageHigh*(1-min(s, 1)), 'f', 1, 64))
	}
	fmt.Fprintf(out, `L%d %dz"/>`+"\n", marginLeft+chartWide, top+usageHigh)
	for i, label := range []string{"100 %", "0 %"} {
		fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", marginLeft-6, top+10+i*(usageHigh-10), label)
	}
	fmt.Fprintf(out, `<text x="%d" y="%d">%s</text>`+"\n", marginLeft, top-6, escape(p.Usage))
	p.axis(out, top+usageHigh)
}

// axis labels about ten instants, counted from the first.
func (p *page) axis(out *bufio.Writer, y int) {
	span := p.To.Sub(p.From)
	step := time.Second
	for _, s := range []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 5 * 24 * time.Hour, 30 * 24 * time.Hour, 100 * 24 * time.Hour, 365 * 24 * time.Hour} {
		if step = s; span/step <= 12 {
			break
		}
	}
	for at := time.Duration(0); at <= span && at/step <= 100; at += step {
		x := marginLeft + int(at/p.perPixel)
		fmt.Fprintf(out, `<path stroke="#999" d="M%d %dv4"/><text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", x, y, x, y+18, since(at, step))
	}
}

// since formats the time after the first instant: in days if all labels are whole days.
func since(at, step time.Duration) string {
	const day = 24 * time.Hour
	if step%day == 0 {
		return strconv.FormatInt(int64(at/day), 10) + " d"
	}
	return cluster.FormatElapsed(at)
}

// escape escapes text for XML.
func escape(text string) string {
	var b []byte
	for _, r := range text {
		switch {
		case r == '<':
			b = append(b, "&lt;"...)
		case r == '&':
			b = append(b, "&amp;"...)
		case r < ' ':
			b = append(b, ' ')
		default:
			b = append(b, string(r)...)
		}
	}
	return string(b)
}
