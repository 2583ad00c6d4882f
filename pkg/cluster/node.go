package cluster

import (
	"strings"
	"time"
)

// NodeState is the state of a node as users see it.
type NodeState uint8

// The states. The first three follow from its allocations, the others from reports of the node and
// an operator's commands.
const (
	NodeIdle NodeState = iota + 1
	NodeMixed
	NodeAllocated
	NodeDraining // no new work is placed; jobs still run
	NodeDrained
	NodeUnknown // silent for two heartbeats: no new work is placed
	NodeDown    // silent for node_timeout: its attempts have ended
)

var nodeStateNames = [...]string{
	NodeIdle: "IDLE", NodeMixed: "MIXED", NodeAllocated: "ALLOCATED",
	NodeDraining: "DRAINING", NodeDrained: "DRAINED", NodeUnknown: "UNKNOWN",
	NodeDown: "DOWN",
}

// String is the state's name as users read it.
func (s NodeState) String() string {
	if s == 0 || int(s) >= len(nodeStateNames) {
		return "?"
	}
	return nodeStateNames[s]
}

// Liveness is what the controller knows about a node's daemon.
type Liveness uint8

// The liveness values.
const (
	Alive Liveness = iota
	Silent
	Dead
)

// SilentAfter is the time without a report after which a node is Silent: two missed heartbeats.
const SilentAfter = 20 * time.Second

// GPU is one device of a node.
type GPU struct {
	Index  int32
	UUID   string
	Type   string // lower case, such as "h100"
	Memory Bytes
	Minor  int32  // N of /dev/nvidiaN, which need not equal Index
	NUMA   int32  // -1 when the host has none
	Domain string // NVLink domain: GPUs with the same name are connected by NVLink; "" means none
	Fault  string // why the device may not be used; "" when healthy

	Degraded string // why jobs of several nodes avoid the device; "" when they need not
	Repair   Repair // what it needs; with no Fault, when it is idle

	// Of a MIG instance, whose Type is its profile: the type of the GPU that it is a part of, and its share
	// in that GPU, in 1/MIGShares. "" and 0 for a whole GPU.
	ParentType string
	Share      int32
}

// Node is one compute node. Like a Job it is replaced, never changed in place.
type Node struct {
	Name       string
	Address    string // the address it dialled from; for display only
	BootID     string
	Epoch      uint64 // log index of its last registration under a new boot; fences reports of an earlier boot
	CPUs       int32
	Memory     Bytes
	GPUs       []GPU // Index is the position in GPUs
	Features   []string
	Version    string // of gnoded
	Runtime    string // such as "containerd 1.6.20 crun"
	Liveness   Liveness
	Since      Instant // of the current liveness
	Drain      bool
	DrainWhy   string
	DrainBy    string
	DrainSince Instant
	Fault      string // the node's own reason to refuse work; "" when it is ready
	Orphans    int32  // orphaned tasks on it; while there are any, no new work is placed
	Registered Instant
	Changed    uint64 // log index of the last change
	Gres       []Gres // what it has of generic resources, sorted by name
	Region     string // its region, which jobs can request; "" where it has none

	Conditions []Condition // what the node reports about its health, sorted; replaced, never changed
	// DrainCause is the cause of the condition that drained the node; "" if an operator drained it.
	DrainCause string
	Reboot     Reboot
	Fence      Fence
	Drains     []SelfDrain // the last drains by conditions, oldest first; replaced, never changed

	FaultSince Instant // since when it reports a fault; 0 for none

	Joined   Instant       // of its first registration
	Failures []NodeFailure // its last failures, oldest first; replaced, never changed

	Market  Market  // of a leased node: spot or on demand
	Rental  Rental  // of a leased node
	Reclaim Instant // the deadline of the cloud's notice that it takes the node back; 0 without one
}

// RebootWhen says when a node reboots for an operator.
type RebootWhen uint8

// The times of a reboot.
const (
	NoReboot       RebootWhen = iota
	RebootASAP                // it takes no new jobs, and reboots when those that run have ended
	RebootWhenIdle            // at the first moment without jobs
)

// Reboot is an operator's request to reboot a node. It ends when the node returns under another boot ID.
type Reboot struct {
	When    RebootWhen
	By, Why string
	Since   Instant
	// Drained says that the request drained the node; its end resumes it. It remains after a reboot that took too
	// long.
	Drained     bool
	StayDrained bool // the node stays drained afterwards
}

// Fence is the wait for proof that a node runs no task of attempts that have ended. Their jobs do not start before.
type Fence struct {
	Since   Instant // 0: no job waits
	Index   uint64  // of the log entry since which the newest of them waits
	Jobs    []JobID // ascending; replaced, never changed
	Tries   uint32  // runs of the fence program that failed
	Tried   Instant // when the last of them ended
	Failure string  // of the last one
}

// FenceRetry is the pause after the first run of the fence program that failed; each further one doubles it up to
// MaxFenceRetry.
const (
	FenceRetry    = 10 * time.Second
	MaxFenceRetry = 5 * time.Minute
)

// Due returns when the fence program runs next.
func (f *Fence) Due() Instant {
	if f.Tries == 0 {
		return f.Since
	}
	pause := FenceRetry
	for n := f.Tries; n > 1 && pause < MaxFenceRetry; n-- {
		pause *= 2
	}
	return f.Tried.Add(min(pause, MaxFenceRetry))
}

// RebootDue reports whether the node is to reboot now.
func (n *Node) RebootDue(u NodeUse) bool {
	return n.Reboot.When != NoReboot && n.Drain && u.Jobs == 0
}

// SameBoot reports whether two boot IDs of nodes, "KERNEL.INSTANCE", are of one boot of the kernel.
func SameBoot(a, b string) bool {
	kernelA, _, _ := strings.Cut(a, ".")
	kernelB, _, _ := strings.Cut(b, ".")
	return kernelA == kernelB
}

// DrainedByOperator reports whether an operator has drained the node, or it is drained to reboot.
func (n *Node) DrainedByOperator() bool { return n.Drain && n.DrainCause == "" }

// Usable reports whether new tasks may be placed on the node.
func (n *Node) Usable() bool {
	return n.Liveness == Alive && !n.Drain && n.Fault == "" && n.Orphans == 0
}

// NodeUse is the allocated part of one node.
type NodeUse struct {
	Jobs   int32
	CPUs   int32
	Memory Bytes
	GPUs   []bool      // by GPU index; true when allocated
	Gres   []Gres      // allocated counts, sorted by name, without types; never changed in place
	Whole  bool        // an exclusive job holds it
	Shared []SharedGPU // the GPUs that jobs share, by index; never changed in place
}

// State derives the state that users see from the node and its use.
func (n *Node) State(u NodeUse) NodeState {
	switch {
	case n.Liveness == Dead:
		return NodeDown
	case n.Liveness == Silent:
		return NodeUnknown
	case (n.Drain || n.Fault != "") && u.Jobs > 0:
		return NodeDraining
	case n.Drain || n.Fault != "":
		return NodeDrained
	case n.Orphans > 0:
		return NodeDraining
	case u.Jobs == 0:
		return NodeIdle
	case u.full(n):
		return NodeAllocated
	}
	return NodeMixed
}

func (u NodeUse) full(n *Node) bool {
	if u.Whole || u.CPUs >= n.CPUs {
		return true
	}
	if len(n.GPUs) == 0 {
		return false
	}
	for _, g := range n.GPUs {
		if g.Fault == "" && (int(g.Index) >= len(u.GPUs) || !u.GPUs[g.Index]) {
			return false
		}
	}
	return true
}
