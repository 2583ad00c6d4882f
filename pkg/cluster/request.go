package cluster

import (
	"slices"
	"time"
)

// Request is what a job asks for. A zero quantity is not requested.
type Request struct {
	Nodes        int32 // at least 1 after Validate, except with Tasks
	Tasks        int32 // in total; the state divides them over nodes at submission, and sets Nodes and TasksPerNode
	MaxNodes     int32 // if set, the job gets up to that many nodes, as far as they are free when it starts
	GPUsPerNode  int32
	GPUs         int32    // in total, distributed by the scheduler; exclusive with GPUsPerNode
	GPUTypes     []string // acceptable types, best first; empty means any
	TasksPerNode int32    // at least 1 after Validate
	CPUsPerTask  int32    // at least 1 after Validate
	MemPerNode   Bytes
	MemPerCPU    Bytes
	MemPerGPU    Bytes
	Features     []string // conditions, as ParseFeatures returns them: all must hold
	NodeList     []string // if set, only these nodes; all of them, and others, if they are fewer than the job takes
	Exclude      []string // never these nodes
	Exclusive    bool     // no other job on its nodes
	GPUMemory    Bytes    // each GPU has at least this much memory of its own
	Connect      Connect  // required locality of its GPUs
	Switches     int32    // at most that many leaf switches; 0 means any number
	// SwitchWait is how much later than without the constraint a job may start so that Connect or
	// Switches is met; after that it starts without. A negative value means that the constraint is
	// never dropped. The state replaces [SwitchDefault] by the policy's MaxSwitchWait.
	SwitchWait time.Duration
	Licences   []Licence // held while it runs
	MaxPrice   int64     // highest price of a GPU hour in micro-credits; 0 means any
	Regions    []string  // if set, only nodes of these
	MemFrom    MemorySource
	Gres       []Gres // of each node, sorted by name
	Share      GPUShare
}

// Special values of SwitchWait.
const (
	SwitchAlways  time.Duration = -1 // never start without
	SwitchDefault time.Duration = -2 // as long as the policy says
)

// Connect is the required locality of a job's GPUs.
type Connect uint8

// The values, as --connect names them.
const (
	ConnectAny    Connect = iota
	ConnectNVLink         // all GPUs of the job in one NVLink domain, of a host or across hosts
	ConnectNode           // the GPUs of each node in one NVLink domain
	ConnectLeaf           // all nodes under one leaf switch
)

var connectNames = [...]string{ConnectAny: "any", ConnectNVLink: "nvlink", ConnectNode: "nvlink-node", ConnectLeaf: "leaf"}

// String returns the word that users write.
func (c Connect) String() string {
	if int(c) >= len(connectNames) {
		return "?"
	}
	return connectNames[c]
}

// ParseConnect reads the form of String.
func ParseConnect(word string) (Connect, bool) {
	for c, name := range connectNames {
		if name == word {
			return Connect(c), true
		}
	}
	return 0, false
}

// AcceptsGPU reports whether a job may be given GPUs of a type. One that names no type gets whole GPUs.
func (r *Request) AcceptsGPU(gpuType string) bool {
	if len(r.GPUTypes) == 0 {
		return !IsMIGProfile(gpuType)
	}
	return slices.Contains(r.GPUTypes, gpuType)
}

// HasLocality reports whether the request constrains the locality of its nodes or GPUs.
func (r *Request) HasLocality() bool { return r.Connect != ConnectAny || r.Switches > 0 }

// Licence is a count of a cluster-wide resource that belongs to no node.
type Licence struct {
	Name  string
	Count int32
}

// CPUsPerNode returns the number of CPUs that the job takes on each of its nodes.
func (r Request) CPUsPerNode() int32 { return r.TasksPerNode * r.CPUsPerTask }

// MemoryOn returns the memory that the request names for a node that gives it that many GPUs;
// [Request.MemoryRule] computes what it takes.
func (r Request) MemoryOn(gpus int32) Bytes {
	return max(r.MemPerNode, r.MemPerCPU*Bytes(r.CPUsPerNode()), r.MemPerGPU*Bytes(gpus))
}

// TotalGPUs returns the number of GPUs of the whole job.
func (r Request) TotalGPUs() int32 {
	if r.GPUs > 0 {
		return r.GPUs
	}
	return r.GPUsPerNode * r.Nodes
}

// NeedsSeveral reports whether the job needs several nodes.
func (r *Request) NeedsSeveral() bool { return r.Nodes > 1 }

// IncludesList reports whether the job takes all nodes of its node list, and others.
func (r *Request) IncludesList() bool {
	return len(r.NodeList) > 0 && len(r.NodeList) < int(max(r.Nodes, r.MaxNodes))
}

// OnlyNodes returns the nodes outside which the job does not run; none if it may run on any.
func (r *Request) OnlyNodes() []string {
	if r.IncludesList() {
		return nil
	}
	return r.NodeList
}

// DivideTasks returns the request with its Tasks on a number of nodes, the same number on each; false if
// that is impossible. Each node has the same number of GPUs as well if each task has, or each GPU the same
// number of tasks.
func (r Request) DivideTasks(nodes int32) (Request, bool) {
	tasks := r.Tasks
	if tasks%nodes != 0 || r.GPUs > 0 && r.GPUs < nodes {
		return r, false
	}
	if r.GPUs > 0 && (r.GPUs%tasks == 0 || tasks%r.GPUs == 0) {
		if r.GPUs%nodes != 0 {
			return r, false
		}
		r.GPUsPerNode, r.GPUs = r.GPUs/nodes, 0
	}
	r.Nodes, r.TasksPerNode, r.Tasks = nodes, tasks/nodes, 0
	return r, true
}

// OnNodes returns the specification with a number of nodes, which a start chooses where the job allows
// several.
func (s *JobSpec) OnNodes(n int32) *JobSpec {
	if n == s.Request.Nodes || s.Request.MaxNodes == 0 {
		return s
	}
	c := *s
	c.Request.Nodes = n
	return &c
}

// Allocation is what a job was granted: one entry per node, in rank order.
type Allocation struct {
	Nodes []NodeAllocation
}

// NodeAllocation is the part of one node that a job was granted.
type NodeAllocation struct {
	Node   string
	GPUs   []int32 // indices of the node's GPUs, ascending
	CPUs   int32
	Memory Bytes
}

// Placement is an allocation that was chosen but not granted yet.
type Placement = Allocation

// AskedVariables are submission options that a Request does not hold, only values derived from
// them. They are in the job's environment, prefixed with GREYLAG_; its node adds Slurm's names
// (sbatch(1), OUTPUT ENVIRONMENT VARIABLES).
var AskedVariables = [...]string{"CPUS_PER_GPU", "GPUS_PER_TASK", "NTASKS_PER_GPU"}

// AskedSizes are options whose value a Request always has. Slurm's names of them are set only if the
// option was given: programs take them for the request to be started by srun. They are in the job's
// environment like AskedVariables.
var AskedSizes = [...]string{"NTASKS", "NTASKS_PER_NODE", "CPUS_PER_TASK"}
