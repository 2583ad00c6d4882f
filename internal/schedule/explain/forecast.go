package explain

import (
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// Forecast says when and where a job would start.
type Forecast struct {
	Now       bool
	Start     cluster.Instant // 0: none is planned
	Partition string          // in which it would start
	Nodes     []string        // as planned now: others may replace them
	Reason    cluster.Reason  // why it would be pending
	Detail    string
}

// ForecastStart returns when and where a pending job of a snapshot starts if no job is submitted or ends early,
// without preemption: as a full pass plans it. It costs a pass.
func ForecastStart(snap *cluster.Snapshot, id cluster.JobID) Forecast {
	p := plan.FromScratch(snap)
	f := Forecast{}
	for _, j := range snap.Pending {
		if j.ID == id { // a held job gets no verdict
			f.Reason, f.Detail = j.Reason, j.Detail
		}
	}
	x := &explainer{Pass: p, fits: map[*plan.Class]fit{}}
	for _, e := range p.Verdicts() {
		if e.Job.ID == id {
			v := x.verdict(e)
			f.Reason, f.Detail = v.Reason, v.Detail
		}
	}
	e := p.Entry(id)
	if e == nil || e.At == 0 {
		if f.Reason == cluster.ReasonBeginTime && f.Detail == "" && e != nil {
			f.Detail = "it will not start before " + words.Instant(max(e.Job.Eligible, e.Job.Spec.Begin))
			forecastLater(p, e.Job, &f)
		}
		return f
	}
	promise := p.PromiseOf(e)
	f.Now, f.Partition = e.Starting, promise.Partition
	if f.Start = plan.Shown(snap.Now, e.At); e.Starting {
		f.Start, f.Reason, f.Detail = snap.Now, cluster.ReasonNone, ""
	}
	for _, h := range promise.Hosts {
		f.Nodes = append(f.Nodes, h.Node)
	}
	return f
}

// forecastLater adds the start of a job that is not eligible before its begin time: the earliest start after
// that time around the present plan. A job with dependencies has none.
func forecastLater(p *plan.Pass, job *cluster.Job, f *Forecast) {
	if len(job.Spec.Depends) > 0 {
		return
	}
	c := p.ClassOf(job.ID, job.Spec)
	if len(c.Options) == 0 {
		f.Reason, f.Detail = c.Never.Reason, c.Never.Detail
		return
	}
	start, choice, found := p.Bookings().Find(c, max(job.Eligible, job.Spec.Begin), cluster.Never)
	if !found {
		return
	}
	f.Start, f.Partition = start.At, c.Options[choice/2].Partition
	for _, share := range start.Shares {
		f.Nodes = append(f.Nodes, p.Resources().Hosts[share.Host].Name)
	}
}
