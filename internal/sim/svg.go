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

// maxLanes is the most interchangeable processors of which each has a lane.
const maxLanes = 1 << 17

// WriteSVG draws who had which GPU (CPU, where there is no GPU) when, and how much of
// the machine was used, as one picture, one colour a user. O(jobs × lanes of each).
func WriteSVG(w io.Writer, o *Outcome, title string) error {
	p := &picture.Jobs{Title: title, From: cluster.Never, Unit: "GPUs", Lanes: o.Fleet.GPUs()}
	gpus := p.Lanes > 0
	if !gpus {
		p.Unit, p.Lanes = "CPUs", o.Fleet.CPUs()
	}
	p.Usage, p.Capacity = fmt.Sprintf("part of the %s in use", p.Unit), float64(p.Lanes)
	for i := range o.Results {
		r := &o.Results[i]
		p.From, p.To = min(p.From, r.Job.Submit), max(p.To, r.End)
	}
	p.To = max(p.To, p.From.Add(time.Second))
	if gpus {
		p.Bars = placed(o)
	} else {
		p.Lanes = min(p.Lanes, maxLanes)
		p.Bars = stacked(o, p.Lanes)
	}
	return p.WriteSVG(w)
}

// placed is the bars of jobs on the GPUs they had.
func placed(o *Outcome) []picture.Bar {
	var bars []picture.Bar
	first := map[string]int32{}
	n := int32(0)
	for i := range o.Fleet.Nodes {
		first[o.Fleet.Nodes[i].Name] = n
		n += int32(len(o.Fleet.Nodes[i].GPUs))
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
				bars = append(bars, picture.Bar{From: r.Start, To: r.End, First: base + gpus[0], Last: base + gpus[0] + int32(run), Hue: hueOf(r)})
				gpus = gpus[run:]
			}
		}
	}
	return bars
}

// stacked is the bars of jobs on processors, which are interchangeable: each gets the
// lowest that are free.
func stacked(o *Outcome, lanes int32) []picture.Bar {
	var bars []picture.Bar
	order := make([]int, 0, len(o.Results))
	for i := range o.Results {
		if o.Results[i].End > 0 {
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

// hueOf is one colour a user; one a job where the log tells no users.
func hueOf(r *Result) uint8 {
	if user := r.Job.Spec.Owner.User; user != "user" {
		return picture.HueOf(user)
	}
	return picture.HueOf("user", r.Job.Name)
}
