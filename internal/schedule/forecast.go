package schedule

import (
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// Forecast is when and where a job would start.
type Forecast struct {
	Now       bool
	Start     cluster.Instant // 0: none is planned
	Partition string          // of the job's, where it would start
	Nodes     []string        // as things are planned now: others may take their place
	Reason    cluster.Reason  // why it would wait
	Detail    string
}

// ForecastStart is when and where a job that waits in a snapshot starts if nobody comes or
// goes before his time: as a pass plans it that plans all anew. What jobs that may
// preempt others would end for it is not looked into. It costs a pass.
func ForecastStart(snap *cluster.Snapshot, id cluster.JobID) Forecast {
	p := NewPlanner()
	d := p.Pass(snap)
	f := Forecast{}
	for _, j := range snap.Pending {
		if j.ID == id { // of one that is held no pass says anything
			f.Reason, f.Detail = j.Reason, j.Detail
		}
	}
	for i := range d.Plan.Verdicts {
		if v := &d.Plan.Verdicts[i]; v.Job == id {
			f.Reason, f.Detail = v.Reason, v.Detail
		}
	}
	e := p.entries[id]
	if e == nil || e.at == 0 {
		if f.Reason == cluster.ReasonBeginTime && f.Detail == "" && e != nil {
			f.Detail = "it is not to start before " + stamp(max(e.job.Eligible, e.job.Spec.Begin))
			p.foreseeLater(snap, e.job, &f)
		}
		return f
	}
	promise := p.promiseOf(e)
	f.Now, f.Partition = e.starts, promise.Partition
	if f.Start = shown(snap.Now, e.at); e.starts {
		f.Start, f.Reason, f.Detail = snap.Now, cluster.ReasonNone, ""
	}
	for _, h := range promise.Hosts {
		f.Nodes = append(f.Nodes, h.Node)
	}
	return f
}

// foreseeLater adds the start of a job that is not eligible before its begin time: the earliest
// start after that time around the present plan. A job with dependencies has none.
func (p *Planner) foreseeLater(snap *cluster.Snapshot, job *cluster.Job, f *Forecast) {
	if len(job.Spec.Depends) > 0 {
		return
	}
	c := p.classOf(p.newRound(snap), job)
	if c.never.reason != cluster.ReasonNone {
		f.Reason, f.Detail = c.never.reason, c.never.detail
		return
	}
	start, choice, found := p.find(c, max(job.Eligible, job.Spec.Begin), cluster.Never, (*backfill.Profile).Search)
	if !found {
		return
	}
	f.Start, f.Partition = start.At, c.options[choice/2].part.Name
	for _, share := range start.Shares {
		f.Nodes = append(f.Nodes, p.ground.hosts[share.Host].Name)
	}
}
