package state

import (
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// takeBack stores a lease whose instance the cloud takes back: its node takes no new jobs, and the jobs there are
// preempted without a preemptor. Each gets its checkpoint signal now, and SIGTERM shortly before the instance ends; a job
// without a signal runs until then.
func (s *State) takeBack(l *cluster.Lease) {
	s.putLease(l)
	node := l.ID.NodeName()
	stop := max(s.now, l.Reclaim.Add(-cluster.ReclaimLead))
	for _, id := range s.jobsOn(node) {
		if old, _ := s.holding.Get(id); old.State != cluster.Completing {
			j := *old
			s.warnReclaimed(&j, node, stop)
			s.put(old, &j)
		}
	}
	s.followUse(l.ID)
}

// noticeReclaim takes a lease back whose node has reported the notice, unless the report has changed the lease.
func (s *State) noticeReclaim(id cluster.LeaseID, at cluster.Instant) {
	if l, known := s.leases.Get(id); known {
		if next := s.leaseEnv().Reclaimed(l, at); next != nil {
			s.takeBack(next)
		}
	}
}

// jobsOn returns the jobs that have an allocation on a node, by ID.
func (x *nodeTables) jobsOn(node string) (list []cluster.JobID) {
	for k := range x.onNode.From(nodeJob{node, 0}) {
		if k.node != node {
			break
		}
		list = append(list, k.id)
	}
	return list
}

// warnReclaimed gives a job, a value that is not shared yet, notice that one of its nodes ends: its tasks get SIGTERM at
// an instant. An elastic job that can do without the node goes on without it.
func (s *State) warnReclaimed(j *cluster.Job, node string, stop cluster.Instant) {
	if rank := s.rankOf(j.ID, node); j.Members != nil && (j.Leaving(rank) || j.MayLose(rank)) {
		if !j.Leaving(rank) {
			s.releaseNodes(j, []int{rank}, stop, "reclaimed by the cloud")
			s.advance(j, 0)
		}
		return
	}
	if stop <= s.now {
		s.end(j, s.reclaimed(j, node))
		s.settle(j)
		return
	}
	asked := j.Preempting != nil
	if asked {
		stop = min(stop, j.Preempting.At)
	}
	j.Preempting = &cluster.Preempting{At: stop, Ref: node}
	j.Reason, j.Detail = cluster.ReasonReclaimed, fmt.Sprintf("reclaim notice for node %s: SIGTERM in %s", node, cluster.FormatElapsed(stop.Sub(s.now)))
	if !asked && j.Spec.PreemptSignal().Number != 0 {
		s.askToSave(j)
	}
}

// reclaimed returns the ending of a job one of whose nodes the cloud takes back. It counts as no failure of the job.
func (s *State) reclaimed(j *cluster.Job, node string) ending {
	return ending{
		outcome: cluster.Preempted, reason: cluster.ReasonReclaimed, returns: j.Spec.Requeue,
		detail: fmt.Sprintf("node %s reclaimed by the cloud: %s", node, s.lostText(j, j.Spec.Requeue)),
	}
}

// endInterrupted ends the jobs on a node that the cloud has taken back, perhaps without notice. Elastic jobs that can do
// without the node go on.
func (s *State) endInterrupted(node string) {
	for _, id := range s.jobsOn(node) {
		old, _ := s.holding.Get(id)
		rank := s.rankOf(id, node)
		if old.State == cluster.Completing || old.Members != nil && (old.Leaving(rank) || old.MayLose(rank)) {
			continue
		}
		j := *old
		s.end(&j, s.reclaimed(&j, node))
		s.settle(&j)
		s.put(old, &j)
	}
}
