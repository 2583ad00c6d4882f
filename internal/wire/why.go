package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/schedule/explain"
	"github.com/greylag/greylag/pkg/cluster"
)

// WriteWhy writes an explanation of a job, which the caller may see. It writes only those jobs in
// it that see does not hide.
func WriteWhy(x *explain.Explanation, see func(*cluster.Job) *cluster.Job) *greylagv1.ExplainJobResponse {
	p := &greylagv1.ExplainJobResponse{
		Causes: x.Causes, Request: x.Needs, Changes: x.Changes, Notes: x.Notes,
		Nodes: int32(x.Nodes), SuitableNodes: int32(x.Suitable), FreeNodes: int32(x.Free), Ahead: int32(x.Ahead),
		CleanupTime: durationpb.New(x.CleanUp), StartAlone: Timestamp(x.Alone),
	}
	for _, r := range x.Exclusions {
		p.Exclusions = append(p.Exclusions, &greylagv1.Exclusion{Condition: r.Condition, Nodes: int32(r.Nodes)})
	}
	for _, h := range x.Holders {
		if j := see(h.Job); j != nil {
			p.Holders = append(p.Holders, &greylagv1.Holder{
				Job: j.Ref().String(), User: j.Spec.Owner.User, Nodes: int32(h.Nodes), Ends: Timestamp(h.Ends), Licences: writeLicences(h.Licences),
			})
		}
	}
	p.UnmetMore = int32(x.UnmetMore)
	for _, u := range x.Unmet {
		if j := see(u.Job); j != nil {
			p.Unmet = append(p.Unmet, &greylagv1.Unmet{Job: j.Ref().String(), User: j.Spec.Owner.User, State: greylagv1.JobState(j.State), Dependency: u.By.String()})
		}
	}
	for _, k := range x.Later {
		p.Upcoming = append(p.Upcoming, &greylagv1.ReservedNodes{
			Reservation: k.By.Name, Nodes: int32(k.Nodes), Start: Timestamp(k.By.Start), End: Timestamp(k.By.End),
		})
	}
	p.FirstAhead, p.Delays = writeRivals(x.First, see), writeRivals(x.Delays, see)
	return p
}

func writeRivals(rivals []explain.AheadJob, see func(*cluster.Job) *cluster.Job) (list []*greylagv1.AheadJob) {
	for _, x := range rivals {
		if j := see(x.Job); j != nil {
			list = append(list, &greylagv1.AheadJob{
				Job: j.Ref().String(), User: j.Spec.Owner.User, Planned: Timestamp(j.Planned), Promised: j.Promise != nil, Reason: x.Why,
			})
		}
	}
	return list
}

// WriteAwaited writes the nodes that have yet to confirm a job's start or end, and the silent nodes
// of a running one. timeout is how long a node may be silent.
func WriteAwaited(j *cluster.Job, node func(string) (*cluster.Node, bool), timeout time.Duration) []*greylagv1.Awaited {
	var phase cluster.TaskPhase
	switch j.State {
	case cluster.Configuring:
		phase = cluster.TaskStarted
	case cluster.Running, cluster.Completing:
		phase = cluster.TaskClean
	default:
		return nil
	}
	var list []*greylagv1.Awaited
	for _, t := range j.Tasks.All() {
		if t.Phase >= phase {
			continue
		}
		p := &greylagv1.Awaited{Node: t.Node}
		if t.Phase == cluster.TaskWanted {
			p.WaitsFor = t.Message
		}
		if n, known := node(t.Node); known && n.Liveness != cluster.Alive {
			silentSince := n.Since.Add(-cluster.SilentAfter) // it was silent for this long by then
			if n.Liveness == cluster.Dead {
				silentSince = n.Since.Add(-timeout)
			}
			p.SilentSince, p.DownAt = Timestamp(silentSince), Timestamp(silentSince.Add(timeout))
		} else if j.State == cluster.Running {
			continue
		}
		list = append(list, p)
	}
	return list
}

// WriteNotes writes the scheduling notes of a job.
func WriteNotes(notes []cluster.Note) []*greylagv1.Note {
	list := make([]*greylagv1.Note, len(notes))
	for i, n := range notes {
		list[i] = &greylagv1.Note{
			Index: n.Index, Time: Timestamp(n.At), Reason: greylagv1.Reason(n.Reason + 1), Planned: Timestamp(n.Planned),
			Promised: n.Promised, Broken: n.Broken,
		}
	}
	return list
}

// WriteShares writes what is kept for a promise; nil for none.
func WriteShares(p *cluster.Promise) []*greylagv1.NodeShare {
	if p == nil {
		return nil
	}
	list := make([]*greylagv1.NodeShare, len(p.Hosts))
	for i, h := range p.Hosts {
		list[i] = &greylagv1.NodeShare{Node: h.Node, Gpus: h.GPUs}
	}
	return list
}

// WritePlanned writes when a job runs, or will run.
func WritePlanned(j *cluster.Job) *greylagv1.PlannedJob {
	p := &greylagv1.PlannedJob{
		Job: j.Ref().String(), User: j.Spec.Owner.User, Partition: j.PartitionList(), State: greylagv1.JobState(j.State),
		Promised: j.Promise != nil, Hosts: WriteShares(j.Promise), Gpus: j.Spec.Request.TotalGPUs(),
	}
	start := j.Planned
	if j.Alloc != nil {
		start, p.Gpus = j.Started, 0
		for i := range j.Alloc.Nodes {
			n := &j.Alloc.Nodes[i]
			p.Hosts = append(p.Hosts, &greylagv1.NodeShare{Node: n.Node, Gpus: int32(len(n.GPUs))})
			p.Gpus += int32(len(n.GPUs))
		}
	}
	p.Start = Timestamp(start)
	if j.Spec.TimeLimit > 0 {
		p.End = Timestamp(start.Add(j.Spec.TimeLimit))
	}
	return p
}
