package schedule

import "github.com/greylag/greylag/pkg/cluster"

// Forecast is when and where a job would start.
type Forecast struct {
	Now       bool
	Start     cluster.Instant // 0: none is planned
	Partition string          // of the job's, where it would start
	Nodes     []string        // as things are planned now: others may take their place
	Reason    cluster.Reason  // why it would wait
	Detail    string
}

// Foresee is when and where a job that waits in a snapshot starts if nobody comes or
// goes before his time: as a pass plans it that plans all anew. What jobs that may
// preempt others would end for it is not looked into. It costs a pass.
func Foresee(snap *cluster.Snapshot, id cluster.JobID) Forecast {
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
