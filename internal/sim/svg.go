package sim

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/picture"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxLanes is the most interchangeable processors that are drawn as lanes.
const maxLanes = 1 << 17

// WriteSVG draws the use of each GPU (CPU, if there is no GPU) over time and the utilisation of the
// machine, one colour per user. It omits jobs on leased nodes. O(jobs × lanes of each).
func WriteSVG(w io.Writer, o *Outcome, title string) error {
	p := &picture.Jobs{Title: title, From: cluster.Never, Unit: "GPUs", Lanes: o.Machine.GPUs()}
	gpus := p.Lanes > 0
	if !gpus {
		p.Unit, p.Lanes = "CPUs", o.Machine.CPUs()
	}
	p.Usage, p.Capacity = fmt.Sprintf("part of the %s in use", p.Unit), float64(p.Lanes)
	for i := range o.Results {
		r := &o.Results[i]
		p.From, p.To = min(p.From, r.Job.Submit), max(p.To, r.End)
	}
	p.To = max(p.To, p.From.Add(time.Second))
	if gpus {
		p.Bars = gpuBars(o)
	} else {
		p.Lanes = min(p.Lanes, maxLanes)
		p.Bars = cpuBars(o, p.Lanes)
	}
	return p.WriteSVG(w)
}

// gpuBars returns the bars of jobs on their GPUs.
func gpuBars(o *Outcome) []picture.Bar {
	var bars []picture.Bar
	first := map[string]int32{}
	n := int32(0)
	for i := range o.Machine.Nodes {
		first[o.Machine.Nodes[i].Name] = n
		n += int32(len(o.Machine.Nodes[i].GPUs))
	}
	for i := range o.Results {
		r := &o.Results[i]
		if r.End == 0 || r.OnCloud() {
			continue
		}
		for k := range r.Nodes {
			base, gpus := first[r.Nodes[k].Node], r.Nodes[k].GPUs
			for len(gpus) > 0 {
				run := 1
				for run < len(gpus) && gpus[run] == gpus[0]+int32(run) {
					run++
				}
				bars = append(bars, picture.Bar{From: r.Start, To: r.End, First: base + gpus[0], Last: base + gpus[0] + int32(run), Hue: hueOf(r)})
				gpus = gpus[run:]
			}
		}
	}
	return bars
}

// cpuBars returns the bars of jobs on processors, which are interchangeable: each gets the lowest
// free ones.
func cpuBars(o *Outcome, lanes int32) []picture.Bar {
	var bars []picture.Bar
	order := make([]int, 0, len(o.Results))
	for i := range o.Results {
		if o.Results[i].End > 0 && !o.Results[i].OnCloud() {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(o.Results[a].Start, o.Results[b].Start) })
	until := make([]cluster.Instant, lanes)
	for _, i := range order {
		r := &o.Results[i]
		left := r.Job.size()
		for l := int32(0); l < lanes && left > 0; {
			if until[l] > r.Start {
				l++
				continue
			}
			run := l
			for ; run < lanes && left > 0 && until[run] <= r.Start; run++ {
				until[run] = r.End
				left--
			}
			bars = append(bars, picture.Bar{From: r.Start, To: r.End, First: l, Last: run, Hue: hueOf(r)})
			l = run
		}
	}
	return bars
}

// hueOf returns one colour per user; one per job if the log has no users.
func hueOf(r *Result) uint8 {
	if user := r.Job.Spec.Owner.User; user != "user" {
		return picture.HueOf(user)
	}
	return picture.HueOf("user", r.Job.Name)
}
