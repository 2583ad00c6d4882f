package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// NodeFailure is a failure of a node itself, not of a program on it.
type NodeFailure struct {
	At    Instant
	Cause string // in words
}

const (
	// FailureWindow is how long a failure of a node counts.
	FailureWindow = 28 * 24 * time.Hour
	// failureMergeWindow is the time within which reports of one node are of the same failure: an XID, the loss of
	// a job, and a reboot.
	failureMergeWindow = 10 * time.Minute
	// MaxNodeFailures limits the recorded failures of a node.
	MaxNodeFailures = 16
	// AvoidTime is how long a job avoids the nodes on which it failed.
	AvoidTime = 24 * time.Hour
	// MaxAvoided limits the nodes that a job avoids.
	MaxAvoided = 256

	// minFailures is how many times within FailureWindow a node that fails often failed at least, and
	// minFailureScore its least Score. A node with the usual rate of 6.5 failures per 1,000 node-days fails 3 times with a
	// probability of 0.1 %.
	minFailures     = 3
	minFailureScore = 50
)

// AppendFailure returns a copy of the failures with one more, without those older than FailureWindow. What
// happens within 10 minutes of the last failure belongs to it.
func AppendFailure(list []NodeFailure, f NodeFailure) []NodeFailure {
	if n := len(list); n > 0 && f.At.Sub(list[n-1].At) < failureMergeWindow {
		return list
	}
	list = slices.DeleteFunc(slices.Clone(list), func(x NodeFailure) bool { return f.At.Sub(x.At) > FailureWindow })
	list = append(list, f)
	return list[max(0, len(list)-MaxNodeFailures):]
}

// FailuresAt returns the failures of the node within FailureWindow, oldest first.
func (n *Node) FailuresAt(now Instant) []NodeFailure {
	for i, f := range n.Failures {
		if now.Sub(f.At) <= FailureWindow {
			return n.Failures[i:]
		}
	}
	return nil
}

// RecentFailures returns how many failures the node had within FailureWindow.
func (n *Node) RecentFailures(now Instant) int64 { return int64(len(n.FailuresAt(now))) }

// observed returns the hours of FailureWindow in which the node was a part of the cluster.
func (n *Node) observed(now Instant) int64 {
	return int64(min(max(0, now.Sub(n.Joined)), FailureWindow) / time.Hour)
}

// FailureRate counts the failures and observed node-hours of a cluster within FailureWindow.
type FailureRate struct {
	Failures  int64
	NodeHours int64
}

// RateOf returns the rate of a cluster's nodes. O(nodes).
func RateOf(nodes []*Node, now Instant) (r FailureRate) {
	for _, n := range nodes {
		r.Failures += n.RecentFailures(now)
		r.NodeHours += n.observed(now)
	}
	return r
}

// Thousandths returns the failures per 1,000 node-days, times 1,000: the observation, averaged with 3.8 failures per
// 1,000 node-days, the published rate of a cluster of 2,048 nodes (Llama 3, arXiv 2407.21783). That prior is always
// added, and counts as 1,000 node-days of observation.
func (r FailureRate) Thousandths() int64 {
	const hours = 1000 * 24
	return (r.Failures*1000 + 3800) * hours / (r.NodeHours + hours)
}

// Score returns the node's failure rate divided by the cluster's, times 10. An expected 0.1 failures are added to
// both, so that a new node scores 10.
func (n *Node) Score(now Instant, rate FailureRate) int64 {
	expected := n.observed(now) * rate.Thousandths() / (1000 * 24) // thousandths of a failure
	return (n.RecentFailures(now)*1000 + 100) * 10 / (expected + 100)
}

// FailsOften reports whether the node fails so often that jobs of many nodes avoid it.
func (n *Node) FailsOften(now Instant, rate FailureRate) bool {
	return n.RecentFailures(now) >= minFailures && n.Score(now, rate) >= minFailureScore
}

// OftenFailing returns the nodes that fail often by name: at most a tenth of all, those with the highest scores; with
// fewer than 10 nodes, none. O(nodes).
func OftenFailing(nodes []*Node, now Instant) []string {
	rate := RateOf(nodes, now)
	type scored struct {
		name  string
		score int64
	}
	var found []scored
	for _, n := range nodes {
		if n.FailsOften(now, rate) {
			found = append(found, scored{n.Name, n.Score(now, rate)})
		}
	}
	slices.SortFunc(found, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(a.name, b.name))
	})
	names := make([]string, 0, len(found))
	for _, f := range found[:min(len(found), len(nodes)/10)] {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

// Avoided is a node that a job avoids: it starts there only if it would otherwise start later.
type Avoided struct {
	Node    string
	Until   Instant
	Attempt Attempt // which failed there
}

// Suspects returns the nodes that may have ended the job's last attempt, by name: those whose task was lost, or
// ended by a fault of the node or its GPU. The second and each later failure of the job itself since its last
// progress makes all of its nodes suspect.
func (j *Job) Suspects(failure Failure) (names []string) {
	for _, t := range j.Tasks.All() {
		suspected := t.Cause == TaskLost || t.Cause == NodeFault || t.Cause == GPUFault
		if suspected || failure == OwnFailure && j.Retries >= 2 {
			names = append(names, t.Node)
		}
	}
	slices.Sort(names)
	return names
}

// AvoidNodes returns a copy of the list with nodes that a job avoids for AvoidTime from now on, without those whose
// time is over, by name.
func AvoidNodes(list []Avoided, names []string, attempt Attempt, now Instant) []Avoided {
	kept := make([]Avoided, 0, len(list)+len(names))
	for _, a := range list {
		if a.Until > now && !slices.Contains(names, a.Node) {
			kept = append(kept, a)
		}
	}
	for _, name := range names {
		kept = append(kept, Avoided{Node: name, Until: now.Add(AvoidTime), Attempt: attempt})
	}
	slices.SortFunc(kept, func(a, b Avoided) int {
		return cmp.Or(cmp.Compare(b.Until, a.Until), strings.Compare(a.Node, b.Node))
	})
	kept = kept[:min(len(kept), MaxAvoided)]
	slices.SortFunc(kept, func(a, b Avoided) int { return strings.Compare(a.Node, b.Node) })
	return kept
}

// AvoidsFailing reports whether the request is for more than 8 nodes (Nodes), and thus avoids those that fail often.
func (r *Request) AvoidsFailing() bool { return r.Nodes > 8 }

// Avoids returns the nodes that a job avoids at an instant, by name: those on which it failed, and those that
// fail often, if its request avoids them.
func (j *Job) Avoids(now Instant, oftenFailing []string) (names []string) {
	for _, a := range j.Avoided {
		if a.Until > now {
			names = append(names, a.Node)
		}
	}
	if j.Spec.Request.AvoidsFailing() {
		names = append(names, oftenFailing...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
