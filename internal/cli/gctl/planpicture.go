package gctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/picture"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// mostDrawn is the largest number of jobs in a picture, the first to start: more cannot be
// distinguished.
const mostDrawn = 20_000

// drawPlan writes a picture of the plan: which job has which GPU when.
func (t commands) drawPlan(ctx context.Context, c ui.Cluster, a *greylagv1.GetPlanResponse, name string) error {
	nodes, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{Read: t.Read()})
	if err != nil {
		return err
	}
	l := newLanes(nodes.Nodes)
	if len(l.until) == 0 {
		return &ui.UsageError{Problem: "no node has a GPU: nothing to draw", Advice: "gctl plan --chart draws jobs without GPUs as well"}
	}
	p := t.picturePlan(a, l)
	if name == "-" {
		return p.WriteSVG(t.Stdout)
	}
	return ui.WriteFile(name, p.WriteSVG)
}

// picturePlan returns bars of jobs, the first to start first, from now on. The bar of a job without
// a time limit extends to the edge.
func (t commands) picturePlan(a *greylagv1.GetPlanResponse, l *lanes) *picture.Jobs {
	now := t.Now()
	jobs := slices.SortedStableFunc(slices.Values(a.Jobs), func(a, b *greylagv1.PlannedJob) int {
		return a.Start.AsTime().Compare(b.Start.AsTime())
	})
	left := len(jobs) - min(len(jobs), mostDrawn)
	jobs = jobs[:len(jobs)-left]
	edge := now.Add(time.Minute)
	runs, promised := 0, 0
	for _, j := range jobs {
		edge = latest(edge, j.Start.AsTime(), j.End.AsTime())
		switch {
		case wire.Word(j.State) != cluster.Pending.String():
			runs++
		case j.Promised:
			promised++
		}
	}
	p := &picture.Jobs{
		Title: fmt.Sprintf("Plan at %s: %d jobs run, %d have a promised start, %d more a planned one (pale)",
			now.Format(ui.TimeLayout), runs, promised, len(jobs)-runs-promised),
		Unit: "GPUs", Usage: "fraction of the GPUs in use or planned",
		From: cluster.InstantOf(now), To: cluster.InstantOf(edge), Lanes: int32(len(l.until)), Capacity: float64(len(l.until)),
	}
	if left > 0 {
		p.Title += fmt.Sprintf("; %d later ones are not drawn", left)
	}
	for _, j := range jobs {
		from, to := cluster.InstantOf(latest(now, j.Start.AsTime())), cluster.InstantOf(edge)
		if j.End != nil {
			to = max(cluster.InstantOf(j.End.AsTime()), from)
		}
		for _, r := range l.take(j, from, to) {
			p.Bars = append(p.Bars, picture.Bar{
				From: from, To: to, First: r.first, Last: r.last, Hue: picture.HueOf(j.User, j.Job),
				Pale: wire.Word(j.State) == cluster.Pending.String() && !j.Promised,
			})
		}
	}
	return p
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// lanes is the GPUs of all nodes, by name, and until when each is in use.
type lanes struct {
	until []cluster.Instant
	of    map[string]run
}

// run is adjacent lanes; last is excluded.
type run struct{ first, last int32 }

func newLanes(nodes []*greylagv1.Node) *lanes {
	l := &lanes{of: make(map[string]run, len(nodes))}
	n := int32(0)
	for _, x := range slices.SortedFunc(slices.Values(nodes), func(a, b *greylagv1.Node) int { return cmp.Compare(a.Name, b.Name) }) {
		l.of[x.Name] = run{n, n + int32(len(x.Gpus))}
		n += int32(len(x.Gpus))
	}
	l.until = make([]cluster.Instant, n)
	return l
}

// take finds lanes for a job: on its nodes if it has some, else anywhere, since nodes are chosen at
// the start. Jobs must arrive in order of their starts.
func (l *lanes) take(j *greylagv1.PlannedJob, from, to cluster.Instant) []run {
	if len(j.Hosts) == 0 {
		return l.within(run{0, int32(len(l.until))}, j.Gpus, from, to)
	}
	var all []run
	for _, h := range j.Hosts {
		all = append(all, l.within(l.of[h.Node], h.Gpus, from, to)...)
	}
	return all
}

// within returns the first n lanes of a run that are free at an instant.
func (l *lanes) within(r run, n int32, from, to cluster.Instant) []run {
	var all []run
	for at := r.first; at < r.last && n > 0; at++ {
		if l.until[at] > from {
			continue
		}
		l.until[at] = to
		n--
		if k := len(all); k > 0 && all[k-1].last == at {
			all[k-1].last++
		} else {
			all = append(all, run{at, at + 1})
		}
	}
	return all
}
