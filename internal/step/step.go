// Package step defines what the programs of a step exchange: gnoded's order to gstepd, and the
// program that grun sends to the nodes.
//
// It decides how ranks are numbered over the nodes. It never starts or contacts anything.
package step

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// ErrBadOrder is wrapped by the errors of [DecodeOrder].
var ErrBadOrder = errors.New("not an order of a step")

// Order is the file that gnoded writes for gstepd. Only the job's user can read it.
type Order struct {
	Job         uint64   `json:"job"`
	Attempt     uint32   `json:"attempt"`
	Step        uint32   `json:"step"`
	Cluster     string   `json:"cluster"`
	Node        int      `json:"node"` // index in Nodes of the node that reads the order
	Nodes       []Node   `json:"nodes"`
	CPUsPerTask int      `json:"cpus_per_task,omitempty"`
	Contact     []string `json:"contact"`         // addresses of grun, IP:PORT or TunnelPrefix and an ID
	Fingerprint string   `json:"fingerprint"`     // SHA-256 of grun's certificate, hexadecimal
	Key         string   `json:"key"`             // hexadecimal
	Env         []string `json:"env"`             // environment of the job's task on this node
	Image       bool     `json:"image,omitempty"` // the job has an image
}

// Node is one node of a step. The GPUs are known only for the node that reads the order.
type Node struct {
	Name       string   `json:"name"`
	Tasks      int      `json:"tasks"`
	GPUs       []string `json:"gpus,omitempty"`        // as CUDA_VISIBLE_DEVICES names them to the job
	GPUIndexes []int32  `json:"gpu_indexes,omitempty"` // the node's own numbers
}

// DecodeOrder decodes an order and checks that it is complete.
func DecodeOrder(data []byte) (Order, error) {
	var o Order
	if err := json.Unmarshal(data, &o); err != nil {
		return Order{}, fmt.Errorf("%w: %w", ErrBadOrder, err)
	}
	if o.Node < 0 || o.Node >= len(o.Nodes) {
		return Order{}, fmt.Errorf("%w: no node %d", ErrBadOrder, o.Node)
	}
	for _, n := range o.Nodes {
		if n.Tasks < 0 || n.Tasks > MaxTasks {
			return Order{}, fmt.Errorf("%w: %d tasks on %s", ErrBadOrder, n.Tasks, n.Name)
		}
	}
	if len(o.Contact) == 0 || o.Fingerprint == "" || o.Key == "" {
		return Order{}, fmt.Errorf("%w: no address, fingerprint or key", ErrBadOrder)
	}
	return o, nil
}

// MaxTasks bounds the tasks of a step.
const MaxTasks = 1 << 20

// ID returns the step's name, such as 123.0.
func (o *Order) ID() string { return FormatID(o.Job, o.Step) }

// FormatID returns the name of a step of a job, such as 123.0.
func FormatID(job uint64, step uint32) string {
	return strconv.FormatUint(job, 10) + "." + cluster.FormatStep(step)
}

// Own returns the node that reads the order.
func (o *Order) Own() Node { return o.Nodes[o.Node] }

// FirstRank returns the rank of the first task of a node: ranks are numbered node by node.
func FirstRank(nodes []Node, node int) int {
	first := 0
	for _, n := range nodes[:node] {
		first += n.Tasks
	}
	return first
}

// CountTasks returns the number of tasks of a step.
func CountTasks(nodes []Node) int { return FirstRank(nodes, len(nodes)) }

// StreamMode says what a standard stream of the tasks is connected to.
type StreamMode int

// The modes.
const (
	StreamAll  StreamMode = iota // grun, for all tasks
	StreamNone                   // /dev/null
	StreamRank                   // grun for one task, /dev/null for the others
	StreamFile                   // a file that the node opens
)

// Stream is one standard stream of the tasks.
type Stream struct {
	Mode StreamMode
	Rank int    // with StreamRank
	Path string // with StreamFile; see [ExpandPath]
}

// The kinds of MPI startup support.
const (
	MPINone = "none"
	MPIPMI2 = "pmi2" // PMI-1 and PMI-2
)

// TunnelPrefix is the prefix of an address that names a tunnel by its ID.
const TunnelPrefix = "tunnel:"

// Program is what the nodes run.
type Program struct {
	// Args has one entry for all ranks, or one for each rank; on a node one for each of its tasks.
	Args [][]string
	// Env is grun's environment. With Clean the tasks get, apart from it, only the variables that
	// a login sets on the node.
	Env   []string
	Clean bool
	// Outside is set if grun runs outside the job: the job's variables are those of its task on the
	// node.
	Outside bool
	Dir     string
	Umask   int
	// Stdin, Stdout and Stderr of the tasks. Append keeps the content of existing files.
	Stdin, Stdout, Stderr Stream
	Append                bool
	Letters               map[byte]string // of file names, except t, n and N
	// PTY runs rank 0 in a terminal of this size and connects the other tasks to /dev/null.
	PTY bool
	// Keep continues a step with PTY when grun is lost. Limit ends one that grun has left; 0: never.
	Keep       bool
	Limit      time.Duration
	AtOnce     bool // output is sent as it comes, not by lines
	Rows, Cols uint16
	Unbuffered bool
	MPI        string
	GPUs       GPUBinding
	CPUs       [][]int // CPUs of the tasks of a node in turn; empty: any
	// Variables of the tasks; 0 or "": not set.
	TasksPerNode, CPUsPerTask int
	JobName                   string
	LaunchAddress             string
}

// GPUBinding says which GPUs of the step a task sees on its node. At most one field is set; none:
// all of them.
type GPUBinding struct {
	PerTask int      // n for each task, in order
	Single  int      // one for n tasks
	Map     []int    // one for each task in turn, by position
	Mask    []uint64 // sets of positions, for the tasks in turn
}

// Ending is the order to end the tasks of a node: with Signal, and after Grace with SIGKILL.
type Ending struct {
	Signal int
	Grace  time.Duration
}

// Exit is how a task ended.
type Exit struct {
	Rank   int
	Code   int // exit status, if no signal
	Signal int
	Core   bool
	OOM    bool   // killed for memory
	Lost   bool   // left after PMI's init without its finalize
	Error  string // why the program could not be run
}

// Status returns the exit status as a shell reports it.
func (e Exit) Status() int {
	if e.Signal > 0 {
		return 128 + e.Signal
	}
	return e.Code
}

// StatusOOM is the exit status of a step with a task that was killed for memory.
const StatusOOM = 253

// Tally finds the exit status of a step. Its zero value is ready to use.
type Tally struct {
	code, signal int
	oom          bool
}

// Add counts one task.
func (t *Tally) Add(e Exit) {
	t.code, t.signal, t.oom = max(t.code, e.Code), max(t.signal, e.Signal), t.oom || e.OOM
}

// Status returns the highest status: out of memory before a signal before an exit status.
func (t *Tally) Status() int {
	switch {
	case t.oom:
		return StatusOOM
	case t.signal > 0:
		return 128 + t.signal
	}
	return t.code
}

// FormatRanks formats ascending ranks, such as 0-3,7.
func FormatRanks(ranks []int) string {
	var b strings.Builder
	for i := 0; i < len(ranks); {
		n := 1
		for i+n < len(ranks) && ranks[i+n] == ranks[i]+n {
			n++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ranks[i]))
		if n > 1 {
			b.WriteString("-" + strconv.Itoa(ranks[i+n-1]))
		}
		i += n
	}
	return b.String()
}

// FormatRepeats formats numbers as Slurm does, such as 72(x2),36.
func FormatRepeats(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n] == list[i] {
			n++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if n > 1 {
			b.WriteString("(x" + strconv.Itoa(n) + ")")
		}
		i += n
	}
	return b.String()
}
