package cluster

import "time"

// Request is what a job asks for. Each quantity that is zero is not asked for.
type Request struct {
	Nodes        int32 // at least 1 after Validate
	GPUsPerNode  int32
	GPUs         int32    // in all, spread as the scheduler likes; exclusive with GPUsPerNode
	GPUTypes     []string // acceptable types, best first; empty means any
	TasksPerNode int32    // at least 1 after Validate
	CPUsPerTask  int32    // at least 1 after Validate
	MemPerNode   Bytes
	MemPerCPU    Bytes
	MemPerGPU    Bytes
	Features     []string // a node must have all of them
	NodeList     []string // if set, only these nodes
	Exclude      []string // never these nodes
	Exclusive    bool     // no other job on its nodes
	GPUMemory    Bytes    // each GPU has at least that much of its own
	Connect      Connect  // how near its GPUs have to be to each other
	Switches     int32    // at most so many leaf switches; 0 means any number
	// SwitchWait is how much later than anywhere a job may start so that Connect or
	// Switches holds; after that it starts without. Negative means it always holds; the
	// state puts the policy's MaxSwitchWait in place of [SwitchDefault].
	SwitchWait time.Duration
	Licences   []Licence // held while it runs
	MaxPrice   int64     // micro-credits for an hour of each GPU at most; 0 means any
	Regions    []string  // if set, only nodes of these
	MemFrom    MemorySource
}

// Values of SwitchWait that are no durations.
const (
	SwitchAlways  time.Duration = -1 // never start without
	SwitchDefault time.Duration = -2 // as long as the policy says
)

// Connect is how near to each other the GPUs of a job have to be.
type Connect uint8

// The degrees, as --connect names them.
const (
	ConnectAny    Connect = iota
	ConnectNVLink         // all GPUs of the job in one NVLink domain, of a host or across hosts
	ConnectNode           // the GPUs of each node in one NVLink domain
	ConnectLeaf           // all nodes under one leaf switch
)

var connectNames = [...]string{ConnectAny: "any", ConnectNVLink: "nvlink", ConnectNode: "nvlink-node", ConnectLeaf: "leaf"}

// String is the word that users write.
func (c Connect) String() string {
	if int(c) >= len(connectNames) {
		return "?"
	}
	return connectNames[c]
}

// ParseConnect reads what String writes.
func ParseConnect(word string) (Connect, bool) {
	for c, name := range connectNames {
		if name == word {
			return Connect(c), true
		}
	}
	return 0, false
}

// HasLocality reports whether the request says how near its nodes or GPUs have to be.
func (r *Request) HasLocality() bool { return r.Connect != ConnectAny || r.Switches > 0 }

// Licence is a count of a cluster-wide resource that is no part of any node.
type Licence struct {
	Name  string
	Count int32
}

// CPUsPerNode is how many CPUs each of its nodes gives the job.
func (r Request) CPUsPerNode() int32 { return r.TasksPerNode * r.CPUsPerTask }

// MemoryOn is the memory that the request names for a node that gives it that many GPUs;
// [Request.MemoryRule] has what it takes.
func (r Request) MemoryOn(gpus int32) Bytes {
	return max(r.MemPerNode, r.MemPerCPU*Bytes(r.CPUsPerNode()), r.MemPerGPU*Bytes(gpus))
}

// TotalGPUs is how many GPUs the whole job asks for.
func (r Request) TotalGPUs() int32 {
	if r.GPUs > 0 {
		return r.GPUs
	}
	return r.GPUsPerNode * r.Nodes
}

// Allocation is what a job was granted: one entry a node, in rank order.
type Allocation struct {
	Nodes []NodeAllocation
}

// NodeAllocation is what one node gives to one job.
type NodeAllocation struct {
	Node   string
	GPUs   []int32 // indices of the node's GPUs, ascending
	CPUs   int32
	Memory Bytes
}

// Placement is an allocation that has been chosen but not granted.
type Placement = Allocation

// AskedVariables are options of a submission that a Request does not hold, but only what follows
// from them. They travel in the job's environment, under these names after GREYLAG_; its node
// gives each Slurm's name as well (sbatch(1), OUTPUT ENVIRONMENT VARIABLES).
var AskedVariables = [...]string{"CPUS_PER_GPU", "GPUS_PER_TASK", "NTASKS_PER_GPU"}
