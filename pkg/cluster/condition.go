package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Repair is what a device or a node needs to work again.
type Repair uint8

// The repairs.
const (
	NoRepair Repair = iota
	RepairReset
	RepairReboot
)

// String returns the repair as users read it; "" for none.
func (r Repair) String() string {
	return [...]string{NoRepair: "", RepairReset: "reset", RepairReboot: "reboot"}[min(r, RepairReboot)]
}

// Effect is the consequence of a condition for its node.
type Effect uint8

// The effects, from the least to the greatest.
const (
	Notice   Effect = iota + 1 // shown to operators
	Degrades                   // no new jobs of several nodes
	Drains                     // no new jobs; running jobs continue
)

var effectNames = [...]string{Notice: "notice", Degrades: "degrades", Drains: "drains"}

// String returns the effect as users read it.
func (e Effect) String() string {
	if e == 0 || int(e) >= len(effectNames) {
		return "?"
	}
	return effectNames[e]
}

// Condition is a problem that a node has found in itself. Tasks on the node continue.
type Condition struct {
	Cause   string // a word by which drains are counted, such as "gpu_lost"
	Effect  Effect
	Repair  Repair
	Message string // one sentence for operators
	Job     JobID  // the job that may have caused it; 0 for none
}

// MaxConditions limits the conditions of a node, and maxConditionCause the bytes of a cause.
const (
	MaxConditions     = 64
	maxConditionCause = 64
)

// CauseReboot is the cause of the condition of a node whose reboot program failed.
const CauseReboot = "reboot"

// SortConditions sorts conditions, the greatest effect first, and drops invalid ones and all beyond
// MaxConditions.
func SortConditions(list []Condition) []Condition {
	list = slices.DeleteFunc(list, func(c Condition) bool {
		return c.Cause == "" || len(c.Cause) > maxConditionCause || c.Effect < Notice || c.Effect > Drains || c.Repair > RepairReboot
	})
	slices.SortFunc(list, func(a, b Condition) int {
		return cmp.Or(cmp.Compare(b.Effect, a.Effect), strings.Compare(a.Cause, b.Cause), strings.Compare(a.Message, b.Message), cmp.Compare(a.Job, b.Job))
	})
	return list[:min(len(list), MaxConditions)]
}

// SelfDrain is a drain of a node by a condition of its own.
type SelfDrain struct {
	At    Instant
	Cause string
	Job   JobID // see Condition
	Ended bool  // the condition ended, and with it the drain
	// Excused reports that the same condition on several nodes was attributed to the job, which is held. If the
	// breaker kept the node in service, there was no drain.
	Excused bool
}

const (
	// DrainWindow is the interval in which drains of one cause are counted across the cluster.
	DrainWindow = 10 * time.Minute
	// RelapseWindow is the interval in which a node resumes by itself once.
	RelapseWindow = 7 * 24 * time.Hour
	// MostDrainsOfJob is the number of nodes that one job may drain.
	MostDrainsOfJob = 2
	// MaxSelfDrains limits the recorded drains of a node.
	MaxSelfDrains = 8
)

// DrainsAllowed returns how many of n nodes conditions of one cause may drain within DrainWindow.
func DrainsAllowed(n int) int { return max(2, n/20) }

// Degraded returns why the node takes no new jobs of several nodes; "" if it does. A condition that would
// drain the node, but may not, has no effect: it may be wrong about many nodes.
func (n *Node) Degraded() string {
	for i := range n.GPUs {
		if g := &n.GPUs[i]; g.Degraded != "" && g.Fault == "" {
			return g.Degraded
		}
	}
	for i := range n.Conditions {
		if n.Conditions[i].Effect == Degrades {
			return n.Conditions[i].Message
		}
	}
	return ""
}

// Repair returns the greatest repair that the node or one of its GPUs needs.
func (n *Node) Repair() Repair {
	r := NoRepair
	for i := range n.GPUs {
		r = max(r, n.GPUs[i].Repair)
	}
	for i := range n.Conditions {
		r = max(r, n.Conditions[i].Repair)
	}
	return r
}

// Undrained returns the conditions that would have drained the node if the breaker had allowed it, without
// those of jobs that were at fault.
func (n *Node) Undrained() (list []Condition) {
	if n.Drain {
		return nil
	}
	return n.Draining()
}

// Draining returns the conditions with the effect Drains, without those of jobs that were at fault.
func (n *Node) Draining() (list []Condition) {
	for _, c := range n.Conditions {
		excused := func(d SelfDrain) bool { return d.Excused && d.Job == c.Job && d.Cause == c.Cause }
		if c.Effect == Drains && !slices.ContainsFunc(n.Drains, excused) {
			list = append(list, c)
		}
	}
	return list
}
