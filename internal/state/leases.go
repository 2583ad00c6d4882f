package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/state/leases"
	"github.com/greylag/greylag/pkg/cluster"
)

// tickLeases bounds the leases whose deadline one tick applies; the next tick does the rest.
const tickLeases = 1000

// leaseUser is who drains a node whose lease ends.
const leaseUser = "burst"

// leaseEnv returns what decisions about leases depend on.
func (t *tables) leaseEnv() *leases.Env {
	return &leases.Env{Now: t.now, Policy: t.policy, Accounts: &t.accounts}
}

// ofLeases carries out a command about leases.
func (s *State) ofLeases(c command.Command) command.Result {
	switch c := c.(type) {
	case *command.SetOffers:
		s.leases.SetOffers(s.leaseEnv(), c)
		s.leasesChanged()
	case *command.UpdateLeases:
		s.updateLeases(c)
	case *command.EndLeases:
		return s.endLeases(c)
	}
	return &command.Done{Version: s.index}
}

// launch leases nodes for a pending job. It returns why not.
func (s *State) launch(c *cluster.Launch, planned uint64) string {
	j, waits := s.pending.Get(c.Job)
	part, known := s.policy.Cloud()
	switch {
	case !waits:
		return "the job is not pending"
	case !known:
		return "no partition has nodes = [\"CLOUD\"]"
	case part.Down:
		return fmt.Sprintf("partition %q is down", part.Name)
	case !slices.Contains(j.Spec.AllPartitions(), part.Name):
		return fmt.Sprintf("the job may not run in partition %q", part.Name)
	case c.Attempt != j.Attempt+1:
		return "the attempt is not the next one"
	case j.Version > planned:
		return "the job was changed since the plan"
	case j.Hold != cluster.NotHeld:
		return "the job is held"
	}
	if why := cmp.Or(s.arrayFull(j), s.leases.Refused(s.leaseEnv(), c, j, s.active)); why != "" {
		s.leases.Refuse(s.leaseEnv(), c.Job, why)
		return why
	}
	s.leases.Launch(s.leaseEnv(), c, j.Spec)
	s.leasesChanged()
	return ""
}

// arrayFull says that as many other elements of a job's array as may run at once run or wait for leased nodes; "" if fewer do.
// O(jobs that wait for leases × log n).
func (s *State) arrayFull(j *cluster.Job) string {
	limit := j.Spec.ArrayLimit
	if j.Array == 0 || limit == 0 {
		return ""
	}
	a, _ := s.arrays.Get(j.Array)
	n := a.holding
	for id := range s.leases.Waiting() {
		if other, waits := s.pending.Get(id); waits && other.Array == j.Array && id != j.ID {
			n++
		}
	}
	if n < limit {
		return ""
	}
	return fmt.Sprintf("%d elements of its array run or wait for leased nodes, and %d may run at once", n, limit)
}

// leasedElsewhere returns why a job that runs until an instant may not use a node because of its lease; "" if it may.
func (s *State) leasedElsewhere(j *cluster.Job, node string, until cluster.Instant) string {
	n, _ := s.nodes.Get(node)
	if n == nil || n.Rental.Lease == 0 {
		return ""
	}
	qos, _ := s.policy.QOSNamed(j.Spec.QOS)
	if why := n.LeaseRefusal(j.ID, j.Spec, qos.AllowsSpot(), s.policy.Burst.Regions); why != "" {
		return "node " + node + " is " + why
	}
	if until == 0 || until > n.Rental.Until {
		return "the lease of node " + node + " ends before the time limit of the job"
	}
	return ""
}

// endOf returns when a job that starts now reaches its time limit; 0 if it has none.
func (s *State) endOf(j *cluster.Job) cluster.Instant {
	if j.Spec.TimeLimit == 0 {
		return 0
	}
	return s.now.Add(j.Spec.TimeLimit)
}

// putLease stores another value of a lease, and keeps the record of its node in step. Once the instance is gone, so is
// the node. Once a lease ends that a pending job waits for, the other nodes of the launch are not enough for the job:
// they may be used by others.
func (s *State) putLease(l *cluster.Lease) {
	old, _ := s.leases.Get(l.ID)
	s.storeLease(l)
	if old.For == 0 || l.State < cluster.LeaseDraining {
		return
	}
	for _, other := range s.leases.OfLaunch(l.Launch) {
		if other.For == old.For {
			s.storeLease(s.leaseEnv().Freed(other, "another lease of the same launch has ended"))
		}
	}
}

// leasesChanged says that leases or offers changed: a deadline may be earlier than all others, and a pass may decide
// differently.
func (s *State) leasesChanged() {
	if n := len(s.effects.Changed); n == 0 || s.effects.Changed[n-1].Kind != LeasesChanged {
		s.effects.Changed = append(s.effects.Changed, Change{Kind: LeasesChanged})
	}
}

// storeLease is putLease without the other leases of the launch.
func (s *State) storeLease(l *cluster.Lease) {
	ended := s.leases.Ended()
	s.leases.Put(s.leaseEnv(), l)
	s.leasesChanged()
	if l.Live() {
		s.followLease(l)
		return
	}
	if seq := s.leases.Ended(); seq > ended {
		s.archiveLease(seq, l)
	}
	s.removeLeased(l)
}

// archiveLease gives a lease that has ended to the archive.
func (s *State) archiveLease(seq uint64, l *cluster.Lease) {
	part, _ := s.policy.Cloud()
	x := cluster.EndedLease{Seq: seq, Partition: part.Name, Lease: *l}
	x.Lease.Token, x.Lease.Console = cluster.Digest{}, ""
	s.effects.Leases = append(s.effects.Leases, x)
}

// followLease changes the record of the node of a lease, if it is registered: only jobs that the lease admits run there,
// and none start once it ends.
func (s *State) followLease(l *cluster.Lease) {
	old, known := s.nodes.Get(l.ID.NodeName())
	if !known {
		return
	}
	n := *old
	rent(&n, l)
	if l.State >= cluster.LeaseDraining && !n.DrainedByOperator() {
		n.Drain, n.DrainCause, n.DrainWhy, n.DrainBy, n.DrainSince = true, "", l.Why, leaseUser, s.now
	}
	s.putNode(&n)
}

// rent gives a node record what it has from its lease; a node of the site has nothing from one.
func rent(n *cluster.Node, l *cluster.Lease) {
	if l == nil {
		n.Market, n.Rental, n.Reclaim = cluster.AnyMarket, cluster.Rental{}, 0
		return
	}
	n.Market, n.Region, n.Reclaim = l.Offer.Market, l.Offer.Region, l.Reclaim
	n.Rental = cluster.Rental{Lease: l.ID, Account: l.Account, For: l.For, Until: l.Expires}
}

// removeLeased removes the record of a node whose instance does not exist any longer, which proves that no task runs
// there.
func (s *State) removeLeased(l *cluster.Lease) {
	name := l.ID.NodeName()
	if _, joined := s.hosts.CertificateHolder("node", name); joined {
		s.hosts.Revoke(s.now, "node", name, leaseUser, "lease ended")
	}
	if !s.nodes.Has(name) {
		return
	}
	s.proveFenced(name)
	s.removeNode(name, "instance ended")
}

// leaseOf returns the lease of a node that registers; nil for a node of the site.
func (s *State) leaseOf(n *cluster.Node) (*cluster.Lease, *command.Refusal) {
	if !cluster.IsLeased(n.Name) {
		return nil, nil
	}
	id, named := cluster.LeaseOf(n.Name)
	l, known := s.leases.Get(id)
	switch {
	case !named || !known:
		return nil, command.WithHint(command.Refusef(command.NotFound, "node %s has no lease", n.Name), "names with the prefix %s are reserved for leased nodes: rename the node", cluster.LeasedPrefix)
	case l.State < cluster.LeaseLaunched || l.State > cluster.LeaseDraining:
		return nil, command.WithHint(command.Refusef(command.Conflict, "the lease of node %s is %s", n.Name, l.State), "the node is no longer part of the cluster: end its instance")
	}
	return l, nil
}

// useToken records that a host joins: with a join token, or as the node of a lease with the token of its launch.
func (s *State) useToken(c *command.UseToken) *command.Refusal {
	l, launch := s.leases.ByToken(c.Hash, c.Instance)
	ended := command.WithHint(command.Refusef(command.Denied, "the launch of the join token has ended"), "end the instance")
	switch {
	case launch == nil && c.Instance == "":
		return s.hosts.UseToken(s.now, c, s.nodes.Has)
	case launch == nil:
		return command.Refuse(command.NotFound, "the join token belongs to no launch", "end the instance")
	case c.Kind != command.NodeToken:
		return command.Refuse(command.InvalidArgument, "the join token is only for the node of a lease", "create one for this host with gctl cluster token")
	case l == nil && launch.State == cluster.LeaseRequested:
		return command.Refusef(command.Conflict, "instance %q is not known yet", command.Sanitize(c.Instance))
	case l == nil && launch.Live():
		return command.Refusef(command.Denied, "instance %q does not belong to the launch of its join token", command.Sanitize(c.Instance))
	case l == nil:
		return ended
	case l.State == cluster.LeaseJoined, l.State == cluster.LeaseRunning:
		return command.Refusef(command.Conflict, "instance %s has already joined", l.Instance)
	case l.State > cluster.LeaseLaunched:
		return command.WithHint(command.Refusef(command.Denied, "the lease of instance %s is %s", l.Instance, l.State), "end the instance")
	}
	return s.hosts.UseLaunchToken(s.now, l, c)
}

// ownLease refuses what only the lease of a node decides: its removal, and that it takes jobs again.
func (s *State) ownLease(n *cluster.Node, c *command.UpdateNodes) *command.Refusal {
	id, leased := cluster.LeaseOf(n.Name)
	l, known := s.leases.Get(id)
	switch {
	case !leased || !known || !l.Live():
		return nil
	case c.Action == command.RemoveNodes:
		return command.WithHint(command.Refusef(command.Conflict, "node %s is leased: it is removed when its lease ends", n.Name), "gctl burst end %d", id)
	case c.Action == command.ResumeNodes && !l.Usable():
		return command.WithHint(command.Refusef(command.Conflict, "the lease of node %s is %s: %s", n.Name, l.State, l.Why), "it takes no more jobs")
	}
	return nil
}

// joinLeased records that the node of a lease has registered. One that has less than was offered ends.
func (s *State) joinLeased(l *cluster.Lease, n *cluster.Node) {
	if l.Adopted {
		s.followLease(l)
		s.endAdopted(n.Name)
	}
	if l.Joined > 0 {
		return
	}
	if why := lacks(n, &l.Offer); why != "" {
		s.leases.Pause(s.now, l.Offer.Key(), leases.NeverJoined, n.Name+" "+why)
		s.putLease(s.leaseEnv().Ended(l, why))
		return
	}
	j, waits := s.pending.Get(l.For)
	if waits && s.now.Add(j.Spec.TimeLimit+eligible.Grace(s.policy)) > l.Expires {
		why := n.Name + " joined too late for its job"
		s.leases.Pause(s.now, l.Offer.Key(), leases.NeverJoined, why)
		s.putLease(s.leaseEnv().Ended(l, why))
		return
	}
	s.putLease(s.leaseEnv().Joined(l))
}

// lacks returns what a node has less than its offer; "" for nothing.
func lacks(n *cluster.Node, o *cluster.Offer) string {
	gpus := int32(0)
	for i := range n.GPUs {
		if n.GPUs[i].Fault == "" {
			gpus++
		}
	}
	switch {
	case gpus < o.GPUs:
		return fmt.Sprintf("reports %d of %d GPUs", gpus, o.GPUs)
	case n.CPUs < o.CPUs:
		return fmt.Sprintf("reports %d of %d CPUs", n.CPUs, o.CPUs)
	}
	return ""
}

// followLeases keeps leases in step with a change of a job: it no longer waits for nodes, or has other nodes.
func (s *State) followLeases(old, j *cluster.Job) {
	if s.leases.Len() == 0 || old == nil {
		return
	}
	if j.State != cluster.Pending || j.Hold != cluster.NotHeld || !j.Spec.Burst.On() || max(j.Eligible, j.Spec.Begin) > s.now || needsOther(old.Spec, j.Spec) {
		s.freeLeases(j)
	}
	if old.Alloc == j.Alloc && old.State.HasAllocation() == j.State.HasAllocation() {
		return
	}
	for _, x := range [...]*cluster.Job{old, j} {
		if x.Alloc == nil || !x.State.HasAllocation() {
			continue
		}
		for i := range x.Alloc.Nodes {
			if id, leased := cluster.LeaseOf(x.Alloc.Nodes[i].Node); leased {
				s.followUse(id)
			}
		}
	}
}

// needsOther reports whether a change of a specification touches what leases were made for.
func needsOther(old, now *cluster.JobSpec) bool {
	if old == now {
		return false
	}
	a, b := &old.Request, &now.Request
	return old.Account != now.Account || old.QOS != now.QOS || longer(now.TimeLimit, old.TimeLimit) || old.Reservation != now.Reservation ||
		!slices.Equal(old.AllPartitions(), now.AllPartitions()) || !slices.Equal(old.Depends, now.Depends) ||
		a.Nodes != b.Nodes || a.GPUsPerNode != b.GPUsPerNode || a.GPUs != b.GPUs || !slices.Equal(a.NodeList, b.NodeList) ||
		!slices.Equal(a.Features, b.Features) || a.MemPerNode != b.MemPerNode || a.MemPerCPU != b.MemPerCPU || a.MemPerGPU != b.MemPerGPU
}

// freeLeases ends the wait of leases for a job that no longer waits for their nodes.
func (s *State) freeLeases(j *cluster.Job) {
	why := "job " + j.Ref().String() + " no longer waits for it"
	if j.State.HasAllocation() {
		why = "job " + j.Ref().String() + " has started"
	}
	for _, l := range s.leases.HeldFor(j.ID) {
		if now, known := s.leases.Get(l.ID); known && now.For == j.ID { // it may have gone with another one of its launch
			s.putLease(s.leaseEnv().Freed(now, why))
		}
	}
}

// farReclaim is the time before the deadline of a reclaim notice within which an idle instance is left to the cloud.
const farReclaim = 5 * time.Minute

// followUse keeps a lease in step with the use of its node. A node that has no job and takes none ends, unless the cloud ends
// it soon.
func (s *State) followUse(id cluster.LeaseID) {
	l, known := s.leases.Get(id)
	if !known {
		return
	}
	u, busy := s.uses.Get(id.NodeName())
	busy = busy && u.Jobs > 0
	switch {
	case l.Usable() && busy && (l.State == cluster.LeaseJoined || l.IdleSince > 0):
		s.leases.Resume(l.Offer.Key())
		s.putLease(s.leaseEnv().Busy(l))
	case l.Usable() && !busy && l.IdleSince == 0:
		s.putLease(s.leaseEnv().Idle(l))
	case l.State == cluster.LeaseDraining && !busy && (l.Reclaim == 0 || l.Reclaim > s.now.Add(farReclaim)):
		s.putLease(s.leaseEnv().Ended(l, ""))
	}
}

// endAdopted ends the lease that a restore lost once its node has reported that no task is left.
func (s *State) endAdopted(node string) {
	n, _ := s.nodes.Get(node)
	if l, known := s.leases.Get(n.Rental.Lease); known && l.Adopted && l.State == cluster.LeaseDraining && n.Orphans == 0 {
		s.putLease(s.leaseEnv().Ended(l, ""))
	}
}

// leaseDead ends the lease of a node that does not respond.
func (s *State) leaseDead(node string) {
	id, leased := cluster.LeaseOf(node)
	if l, known := s.leases.Get(id); leased && known && l.Live() && l.State < cluster.LeaseTerminating {
		why := "node does not respond"
		if l.Reclaim > 0 {
			why = "reclaimed by the cloud"
		}
		s.putLease(s.leaseEnv().Ended(l, why))
	}
}

// tickLeases applies the deadlines of leases.
func (s *State) tickLeases() {
	s.leases.Forget(s.now, tickForget)
	s.freeUnusable()
	var planned map[string][]*cluster.Job
	for _, due := range s.leases.Due(s.now, tickLeases) {
		l, known := s.leases.Get(due.ID)
		if !known || l.Deadline == 0 || l.Deadline > s.now {
			continue // another lease of its launch has changed it
		}
		switch {
		case l.State == cluster.LeaseLaunched:
			s.leases.Pause(s.now, l.Offer.Key(), leases.NeverJoined, l.ID.NodeName()+" did not join")
		case l.State == cluster.LeaseJoined && l.For != 0 && l.Expires > s.now:
			s.leases.Pause(s.now, l.Offer.Key(), leases.NotAllowed, "the job of "+l.ID.NodeName()+" did not start there")
		}
		if next := s.leaseEnv().Overdue(l); next != nil {
			s.putLease(next)
			continue
		}
		if planned == nil {
			planned = s.burstStarts()
		}
		keep := s.leaseEnv().IdleTime(l)
		if s.needed(l, planned[l.Account], s.now.Add(keep)) {
			s.putLease(s.leaseEnv().Kept(l, s.now.Add(keep)))
			continue
		}
		s.putLease(s.leaseEnv().Ended(l, "idle for "+cluster.FormatElapsed(s.now.Sub(l.IdleSince))))
	}
}

// faultPatience is how long the node of a lease may report a fault before the job that it was leased for no longer waits for
// it.
const faultPatience = 2 * time.Minute

// freeUnusable ends the wait of jobs for leased nodes that have joined and cannot take them: their nodes are drained, or have
// had a fault for some time. O(jobs that wait for leases × log n).
func (s *State) freeUnusable() {
	for _, id := range slices.Collect(s.leases.Waiting()) {
		for _, l := range s.leases.HeldFor(id) {
			n, known := s.nodes.Get(l.ID.NodeName())
			if now, _ := s.leases.Get(l.ID); !known || now == nil || now.For != id || !now.Usable() {
				continue
			}
			if n.Drain || n.Fault != "" && n.FaultSince.Add(faultPatience) <= s.now {
				s.freeLaunch(l)
			}
		}
	}
}

// freeLaunch ends the wait of a job for a leased node, and with it for the others of the launch, which are too few.
func (s *State) freeLaunch(l *cluster.Lease) {
	for _, other := range s.leases.OfLaunch(l.Launch) {
		if other.For == l.For && other.For != 0 {
			s.storeLease(s.leaseEnv().Freed(other, "node "+l.ID.NodeName()+" of the same launch takes no jobs"))
		}
	}
}

// maxBurstStarts bounds the jobs of an account that are compared with an idle node.
const maxBurstStarts = 100

// burstStarts returns the pending jobs that may run on leased nodes and have a planned start, by account: those that start
// first, the earliest first. O(pending jobs log n).
func (s *State) burstStarts() map[string][]*cluster.Job {
	jobs := map[string][]*cluster.Job{}
	for _, j := range s.pending.All() {
		if j.Planned > 0 && j.Hold == cluster.NotHeld && j.Spec.Burst.On() {
			jobs[j.Spec.Account] = append(jobs[j.Spec.Account], j)
		}
	}
	for account, list := range jobs {
		slices.SortFunc(list, func(a, b *cluster.Job) int { return cmp.Or(cmp.Compare(a.Planned, b.Planned), cmp.Compare(a.ID, b.ID)) })
		jobs[account] = list[:min(len(list), maxBurstStarts)]
	}
	return jobs
}

// needed reports whether one of the jobs, by their planned starts, starts until an instant and fits on the idle node of a
// lease. O(jobs).
func (s *State) needed(l *cluster.Lease, jobs []*cluster.Job, until cluster.Instant) bool {
	n, known := s.nodes.Get(l.ID.NodeName())
	part, cloud := s.policy.Cloud()
	if !known || !cloud || !n.Usable() {
		return false
	}
	for _, j := range jobs {
		if j.Planned > until {
			return false
		}
		end := max(j.Planned, s.now).Add(j.Spec.TimeLimit)
		if j.Spec.TimeLimit > 0 && slices.Contains(j.Spec.AllPartitions(), part.Name) && s.leasedElsewhere(j, n.Name, end) == "" && suits(&j.Spec.Request, n) {
			return true
		}
	}
	return false
}

// suits reports whether a node that has no job has what a request needs of each of its nodes.
func suits(r *cluster.Request, n *cluster.Node) bool {
	f := cluster.NewNodeFilter(r)
	for range f.Capacity(n, cluster.NodeUse{}) {
		return false
	}
	return f.Suits(n)
}

// updateLeases records what happened to leases.
func (s *State) updateLeases(c *command.UpdateLeases) {
	for i := range c.Updates {
		u := &c.Updates[i]
		for _, l := range s.leases.Events(s.leaseEnv(), u) {
			s.takeEvent(u, l)
		}
	}
}

// takeEvent stores a lease that an event has changed.
func (s *State) takeEvent(u *command.LeaseUpdate, l *cluster.Lease) {
	old, known := s.leases.Get(l.ID)
	switch {
	case !known: // the end of another lease had it forgotten
		return
	case u.Event == command.LaunchFailed && u.Capacity:
		s.leases.Pause(s.now, l.Offer.Key(), leases.NoCapacity, u.Why)
	case u.Event == command.LaunchFailed:
		s.leases.Pause(s.now, l.Offer.Key(), leases.NotAllowed, u.Why)
	case u.Event == command.LeaseEnded && old.State == cluster.LeaseLaunched && !u.Interrupted:
		s.leases.Pause(s.now, l.Offer.Key(), leases.NeverJoined, l.ID.NodeName()+" ended before it joined")
	case u.Event == command.LeaseReclaimed:
		s.takeBack(l)
		return
	case u.Event == command.LeaseMismatched:
		s.leases.Pause(s.now, l.Offer.Key(), leases.NotAllowed, l.ID.NodeName()+": "+l.Why)
		if l.State == cluster.LeaseDraining {
			s.takeBack(l)
			return
		}
	case l.Interrupted:
		s.endInterrupted(l.ID.NodeName())
	}
	s.putLease(l)
}

// endLeases ends leases at the request of an operator: all that are named, or none.
func (s *State) endLeases(c *command.EndLeases) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	switch {
	case len(c.Leases) == 0:
		return command.Refuse(command.InvalidArgument, "no lease given", "list them with gctl burst list --ended")
	case !c.Actor.Has(command.RoleOperator):
		return command.Refusef(command.Denied, "%s may not end leases: requires role operator", c.Actor.Identity.User)
	}
	for _, id := range c.Leases {
		if _, known := s.leases.Get(id); !known {
			return s.remember(c.Request, command.WithHint(command.Refusef(command.NotFound, "no lease %d", id), "list them with gctl burst list --ended"))
		}
	}
	why := "ended by " + c.Actor.Identity.User
	if text := strings.TrimSpace(c.Why); text != "" {
		why += ": " + command.Sanitize(text)
	}
	answer := &command.Named{Index: s.index}
	for _, id := range c.Leases {
		if s.endLease(id, c.Now, why) {
			answer.Names = append(answer.Names, id.NodeName())
		}
	}
	return s.remember(c.Request, answer)
}

// endLease ends a lease and reports whether it changed: its node drains first if it has jobs, unless it ends now.
func (s *State) endLease(id cluster.LeaseID, now bool, why string) bool {
	l, known := s.leases.Get(id)
	u, _ := s.uses.Get(id.NodeName())
	switch {
	case !known: // the end of another lease had it forgotten
		return false
	case l.State >= cluster.LeaseTerminating, l.State == cluster.LeaseDraining && !now:
		return false
	case l.Usable() && u.Jobs > 0 && !now:
		s.putLease(s.leaseEnv().Drained(l, why))
	default:
		s.putLease(s.leaseEnv().Ended(l, why))
	}
	return true
}
