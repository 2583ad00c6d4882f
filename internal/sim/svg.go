package sim

import (
	"bufio"
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// The picture's measures, in pixels. A column of it is one instant in time, a row of
// the chart some GPUs or CPUs.
const (
	chartWide   = 1200
	chartHigh   = 400 // at most: fewer rows are drawn higher
	usageHigh   = 120
	marginLeft  = 70
	marginTop   = 34
	marginGap   = 30
	marginRight = 16
	axisHigh    = 26
	maxLanes    = 1 << 17
	colours     = 12
)

// lane is one GPU or CPU, from the top.
type lane = int32

// bar is one job on neighbouring lanes.
type bar struct {
	from, to    cluster.Instant
	first, last lane // last excluded
	colour      uint8
}

// WriteSVG draws who had which GPU (CPU, where there is no GPU) when, and how much of
// the machine was used, as one picture. What is too small to see is left out: of all
// jobs that meet in a pixel the one that has most of it is drawn, so that the size of
// the picture is bounded. O(jobs × lanes of each).
func WriteSVG(w io.Writer, o *Outcome, title string) error {
	p := newPicture(o)
	out := bufio.NewWriter(w)
	high := marginTop + p.rows*p.rowHigh + marginGap + usageHigh + axisHigh
	wide := marginLeft + chartWide + marginRight
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", wide, high, wide, high)
	fmt.Fprintf(out, `<rect width="%d" height="%d" fill="white"/>`+"\n", wide, high)
	fmt.Fprintf(out, `<text x="%d" y="20" font-size="14">%s</text>`+"\n", marginLeft, escape(title))
	p.chart(out)
	p.usage(out)
	out.WriteString("</svg>\n") // the error stays until Flush
	return out.Flush()
}

type picture struct {
	bars       []bar
	from, to   cluster.Instant
	lanes      lane
	rows       int
	rowHigh    int
	unit       string
	capacity   float64
	perPixel   time.Duration
	lanePerRow float64
}

func newPicture(o *Outcome) *picture {
	p := &picture{from: cluster.Never, unit: "GPUs", lanes: o.Fleet.GPUs()}
	if p.lanes == 0 {
		p.unit, p.lanes = "CPUs", o.Fleet.CPUs()
	}
	p.capacity = float64(p.lanes)
	for i := range o.Results {
		r := &o.Results[i]
		p.from, p.to = min(p.from, r.Job.Submit), max(p.to, r.End)
	}
	p.to = max(p.to, p.from.Add(time.Second))
	p.lanes = min(p.lanes, maxLanes)
	p.rows = int(min(p.lanes, chartHigh))
	p.rowHigh = max(1, min(24, chartHigh/max(p.rows, 1)))
	p.perPixel = max(p.to.Sub(p.from)/chartWide, 1)
	p.lanePerRow = float64(p.lanes) / float64(p.rows)
	if p.unit == "GPUs" {
		p.placed(o)
	} else {
		p.stacked(o)
	}
	return p
}

// placed makes the bars of jobs on the GPUs they had.
func (p *picture) placed(o *Outcome) {
	first := map[string]lane{}
	n := lane(0)
	for i := range o.Fleet.Nodes {
		first[o.Fleet.Nodes[i].Name] = n
		n += lane(len(o.Fleet.Nodes[i].GPUs))
	}
	for i := range o.Results {
		r := &o.Results[i]
		if r.End == 0 {
			continue
		}
		for k := range r.Nodes {
			base, gpus := first[r.Nodes[k].Node], r.Nodes[k].GPUs
			for len(gpus) > 0 {
				run := 1
				for run < len(gpus) && gpus[run] == gpus[0]+int32(run) {
					run++
				}
				p.bars = append(p.bars, bar{r.Start, r.End, base + gpus[0], base + gpus[0] + lane(run), colourOf(r)})
				gpus = gpus[run:]
			}
		}
	}
}

// stacked makes the bars of jobs on processors, which are interchangeable: each gets
// the lowest that are free.
func (p *picture) stacked(o *Outcome) {
	order := make([]int, 0, len(o.Results))
	for i := range o.Results {
		if o.Results[i].End > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(o.Results[a].Start, o.Results[b].Start) })
	until := make([]cluster.Instant, p.lanes)
	for _, i := range order {
		r := &o.Results[i]
		left := r.Job.size()
		for l := lane(0); l < p.lanes && left > 0; {
			if until[l] > r.Start {
				l++
				continue
			}
			run := l
			for ; run < p.lanes && left > 0 && until[run] <= r.Start; run++ {
				until[run] = r.End
				left--
			}
			p.bars = append(p.bars, bar{r.Start, r.End, l, run, colourOf(r)})
			l = run
		}
	}
}

// colourOf is one colour a user.
func colourOf(r *Result) uint8 {
	h := fnv.New32a()
	h.Write([]byte(r.Job.Spec.Owner.User))
	if r.Job.Spec.Owner.User == "user" { // the log tells no users
		h.Write([]byte(r.Job.Name))
	}
	return uint8(h.Sum32() % colours)
}

// column is the pixel that an instant is in, and the part of it that lies before.
func (p *picture) column(at cluster.Instant) (int, float64) {
	x := float64(at-p.from) / float64(p.perPixel)
	n := min(max(int(x), 0), chartWide-1)
	return n, min(max(x-float64(n), 0), 1)
}

// grid is the chart's pixels: the colour that has most of each, from 1, and how much.
type grid struct {
	colour [][chartWide]uint8
	most   [][chartWide]float32
}

func (p *picture) raster() *grid {
	g := &grid{make([][chartWide]uint8, p.rows), make([][chartWide]float32, p.rows)}
	for _, b := range p.bars {
		c0, before := p.column(b.from)
		c1, after := p.column(b.to)
		r0, r1 := int(float64(b.first)/p.lanePerRow), int(float64(b.last-1)/p.lanePerRow)
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
					g.most[row][c], g.colour[row][c] = part, b.colour+1
				}
			}
		}
	}
	return g
}

// chart draws the jobs: of each colour one path of horizontal bars.
func (p *picture) chart(out *bufio.Writer) {
	g := p.raster()
	fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" fill="#f3f3f3"/>`+"\n", marginLeft, marginTop, chartWide, p.rows*p.rowHigh)
	for colour := range uint8(colours) {
		fmt.Fprintf(out, `<path fill="hsl(%d,60%%,%d%%)" d="`, int(colour)*360/colours, 45+10*(int(colour)%2))
		for row := range p.rows {
			line := &g.colour[row]
			for c := 0; c < chartWide; {
				run := c
				for run < chartWide && line[run] == colour+1 {
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
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="end">%d %s</text>`+"\n", marginLeft-6, marginTop+10, p.lanes, p.unit)
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="end">0</text>`+"\n", marginLeft-6, marginTop+p.rows*p.rowHigh)
}

// usage draws how much of the machine was used over time.
func (p *picture) usage(out *bufio.Writer) {
	var share [chartWide]float64
	for _, b := range p.bars {
		c0, before := p.column(b.from)
		c1, after := p.column(b.to)
		n := float64(b.last-b.first) / p.capacity
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
	fmt.Fprintf(out, `<text x="%d" y="%d">part of the %s in use</text>`+"\n", marginLeft, top-6, p.unit)
	p.axis(out, top+usageHigh)
}

// axis labels about ten instants, counted from the first submission.
func (p *picture) axis(out *bufio.Writer, y int) {
	span := p.to.Sub(p.from)
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

// since is how long after the first submission a label stands: in days where all do.
func since(at, step time.Duration) string {
	const day = 24 * time.Hour
	if step%day == 0 {
		return strconv.FormatInt(int64(at/day), 10) + " d"
	}
	return cluster.FormatElapsed(at)
}

// escape makes text safe within XML.
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
