package cluster

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"
)

// MaxSteps is the most steps of one attempt, as Slurm's default MaxStepCount.
const MaxSteps = 40_000

// StepSpec is what a user asks of a step: tasks on nodes of a job. Without Nodes, Tasks and TasksPerNode
// there is one task on each node.
type StepSpec struct {
	Name         string
	NodeList     []string // only these nodes; empty: any
	Exclude      []string
	FirstNode    int32 // index of the first of the remaining nodes to use
	Nodes        int32 // 0: all, or as many as there are tasks
	Tasks        int32
	TasksPerNode int32
	CPUsPerTask  int32
	GPUs         int32 // in all
	GPUsPerTask  int32
	GPUsPerNode  int32 // -1: not given
	Exact        bool  // no other step uses its GPUs
	Overlap      bool  // it may use the GPUs of other steps
	Terminal     bool  // its first task has a terminal
	Interactive  bool  // it is the shell of an allocation: InteractiveStep if the attempt had none
	Contact      StepContact
}

// InteractiveStep is the ID of the step of an allocation's shell, at most one in an attempt, as in Slurm.
const InteractiveStep uint32 = 0xfffffffa

// interactiveName is how users write InteractiveStep.
const interactiveName = "interactive"

// FormatStep returns a step's ID as users write it: a number or "interactive".
func FormatStep(id uint32) string {
	if id == InteractiveStep {
		return interactiveName
	}
	return strconv.FormatUint(uint64(id), 10)
}

// ParseStep reads a step's ID as FormatStep writes it, or InteractiveStep as a number.
func ParseStep(text string) (uint32, error) {
	if text == interactiveName {
		return InteractiveStep, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("not the ID of a step: %q", text)
	}
	return uint32(n), nil
}

// FindStep returns the position of a step among those of an attempt; -1 if it does not exist. O(1), but
// O(steps) for InteractiveStep.
func FindStep(steps []*Step, id uint32) int {
	if id == InteractiveStep {
		return slices.IndexFunc(steps, func(s *Step) bool { return s.ID == id })
	}
	for _, at := range [...]int64{int64(id), int64(id) + 1} { // behind an interactive step
		if at < int64(len(steps)) && steps[at].ID == id {
			return int(at)
		}
	}
	return -1
}

// StepContact is how the nodes of a step reach the program that started it, and prove that they belong
// to the step.
type StepContact struct {
	Addresses   []string
	Fingerprint Digest // SHA-256 of its TLS certificate
	Key         [16]byte
}

// Step is tasks that a user started inside an attempt of a job. A Step is never changed in place.
type Step struct {
	ID          uint32
	Name        string
	Nodes       []StepNode // in the order of the ranks of their tasks
	CPUsPerTask int32
	Exclusive   bool         // no other step uses its GPUs
	Terminal    bool         // its first task has a terminal
	Contact     *StepContact // nil when it has ended
	Signals     []StepSignal // oldest first; the newest 8
	Stop        bool         // its nodes end it
	Started     Instant
	Ended       Instant // 0: active
	Requester   string  // user who ended it; "" for none
	OutOfMemory bool
	Exit        Exit // the worst of its tasks
	Memory      Bytes
	CPUTime     time.Duration
	User        time.Duration // within CPUTime
}

// StepNode is the part of a step on one node of its job.
type StepNode struct {
	Rank  int32   // of the node in the job's allocation
	Tasks int32   // number of tasks
	GPUs  []int32 // positions in the GPUs of the node's allocation
	Ended bool    // the node has reported its end
}

// StepSignal is one signal that a user sent to a step.
type StepSignal struct {
	ID     uint64 // log index of the request
	Number int32
}

// Active reports whether the step may have processes.
func (s *Step) Active() bool { return s.Ended == 0 }

// Tasks returns the number of tasks of the step.
func (s *Step) Tasks() (n int32) {
	for _, node := range s.Nodes {
		n += node.Tasks
	}
	return n
}

// State returns the state of a step in the words of jobs.
func (s *Step) State() JobState {
	switch {
	case s.Active():
		return Running
	case s.OutOfMemory:
		return OutOfMemory
	case s.Requester != "" || s.Stop:
		return Cancelled
	case s.Exit.OK():
		return Completed
	}
	return Failed
}

// On returns the index of the node with a rank in the job's allocation; -1 if the step does not use it.
// O(nodes of the step).
func (s *Step) On(rank int) int {
	return slices.IndexFunc(s.Nodes, func(n StepNode) bool { return int(n.Rank) == rank })
}

// ActiveSteps yields the job's active steps with their positions. O(steps).
func (j *Job) ActiveSteps() iter.Seq2[int, *Step] {
	return func(yield func(int, *Step) bool) {
		for at, s := range j.Steps {
			if s.Active() && !yield(at, s) {
				return
			}
		}
	}
}

// LayoutError says why a step does not fit its job. Waits marks one that fits once other steps have
// ended.
type LayoutError struct {
	Text  string
	Waits bool
}

// Error returns the text.
func (e *LayoutError) Error() string { return e.Text }

func layoutError(format string, args ...any) *LayoutError {
	return &LayoutError{Text: fmt.Sprintf(format, args...)}
}

// Layout distributes the tasks of a step over the nodes of the job, evenly and in the order of the
// allocation, and chooses its GPUs. O(nodes + active steps).
func (s *StepSpec) Layout(j *Job) (*Step, *LayoutError) {
	ranks, err := s.ranks(j.Alloc)
	if err != nil {
		return nil, err
	}
	counts, err := s.counts(len(ranks))
	if err != nil {
		return nil, err
	}
	step := &Step{
		Name: s.Name, CPUsPerTask: max(s.CPUsPerTask, 1), Contact: &s.Contact, Terminal: s.Terminal,
		Exclusive: !s.Overlap && (s.GPUsPerTask > 0 || s.Exact && s.asksGPUs()),
	}
	for i, tasks := range counts {
		step.Nodes = append(step.Nodes, StepNode{Rank: ranks[i], Tasks: tasks})
	}
	if err := s.chooseGPUs(j, step); err != nil {
		return nil, err
	}
	for i := range step.Nodes {
		a := &j.Alloc.Nodes[step.Nodes[i].Rank]
		// Tasks may be more than CPUs, which they share, unless the step says how many each needs.
		need := int64(step.Nodes[i].Tasks) * int64(s.CPUsPerTask)
		if s.Exact && s.CPUsPerTask == 0 {
			need = int64(step.Nodes[i].Tasks)
		}
		if need > int64(a.CPUs) {
			return nil, layoutError("too few CPUs on node %s: the step needs %d and the job has %d", a.Node, need, a.CPUs)
		}
	}
	return step, nil
}

// ranks returns the ranks of the nodes that the step may use, in order.
func (s *StepSpec) ranks(a *Allocation) ([]int32, *LayoutError) {
	var ranks []int32
	for rank, n := range a.Nodes {
		if (len(s.NodeList) == 0 || slices.Contains(s.NodeList, n.Node)) && !slices.Contains(s.Exclude, n.Node) {
			ranks = append(ranks, int32(rank))
		}
	}
	for _, name := range s.NodeList {
		if !slices.ContainsFunc(a.Nodes, func(n NodeAllocation) bool { return n.Node == name }) {
			return nil, layoutError("node %s does not belong to the job", name)
		}
	}
	if int(s.FirstNode) >= len(ranks) {
		return nil, layoutError("the step is to start at node %d, counted from 0, and may use %d of the job's nodes", s.FirstNode, len(ranks))
	}
	return ranks[s.FirstNode:], nil
}

// counts returns the number of tasks on each node, given how many nodes may be used.
func (s *StepSpec) counts(most int) ([]int32, *LayoutError) {
	nodes, tasks := int(s.Nodes), int(s.Tasks)
	if nodes == 0 {
		nodes = most
		switch {
		case tasks > 0 && s.TasksPerNode > 0:
			nodes = (tasks + int(s.TasksPerNode) - 1) / int(s.TasksPerNode)
		case tasks > 0:
			nodes = min(most, tasks)
		}
	}
	if tasks == 0 {
		tasks = nodes * int(max(s.TasksPerNode, 1))
	}
	nodes = min(nodes, tasks)
	switch {
	case nodes > most:
		return nil, layoutError("too few nodes: the step needs %d and may use %d of the job", nodes, most)
	case s.TasksPerNode > 0 && tasks > nodes*int(s.TasksPerNode):
		return nil, layoutError("%d tasks do not fit on %d nodes with %d tasks each", tasks, nodes, s.TasksPerNode)
	}
	counts := make([]int32, nodes)
	for i := range counts {
		counts[i] = int32(tasks / nodes)
		if i < tasks%nodes {
			counts[i]++
		}
		if s.TasksPerNode > 0 {
			counts[i] = int32(min(int(s.TasksPerNode), tasks-i*int(s.TasksPerNode)))
		}
	}
	return slices.DeleteFunc(counts, func(n int32) bool { return n <= 0 }), nil
}

// asksGPUs reports whether the user named a number of GPUs.
func (s *StepSpec) asksGPUs() bool { return s.GPUs > 0 || s.GPUsPerTask > 0 || s.GPUsPerNode > 0 }

// chooseGPUs chooses the GPUs of a step on each of its nodes: all of the job's if no number is given,
// and none of those that another step has for itself.
func (s *StepSpec) chooseGPUs(j *Job, step *Step) *LayoutError {
	left := s.GPUs
	var exclusive []*Step // the active ones
	for _, other := range j.ActiveSteps() {
		if other.Exclusive && step.Exclusive {
			exclusive = append(exclusive, other)
		}
	}
	for i := range step.Nodes {
		n := &step.Nodes[i]
		a := &j.Alloc.Nodes[n.Rank]
		want := int32(len(a.GPUs))
		switch {
		case s.GPUsPerTask > 0:
			want = s.GPUsPerTask * n.Tasks
		case s.GPUsPerNode >= 0:
			want = s.GPUsPerNode
		case s.GPUs > 0:
			share := (left + int32(len(step.Nodes)-i) - 1) / int32(len(step.Nodes)-i)
			want = min(share, int32(len(a.GPUs)))
			left -= want
		}
		if int(want) > len(a.GPUs) {
			return layoutError("too few GPUs on node %s: the step needs %d and the job has %d", a.Node, want, len(a.GPUs))
		}
		n.GPUs = freeGPUs(n.Rank, len(a.GPUs), exclusive)
		switch {
		case len(n.GPUs) < int(want):
			return &LayoutError{Text: fmt.Sprintf("too few free GPUs on node %s: the step needs %d, and other steps leave %d of %d", a.Node, want, len(n.GPUs), len(a.GPUs)), Waits: true}
		default:
			n.GPUs = n.GPUs[:want]
		}
	}
	if s.GPUs > 0 && s.GPUsPerTask == 0 && s.GPUsPerNode < 0 && left > 0 {
		return layoutError("too few GPUs: the step needs %d and the job has %d on its nodes", s.GPUs, s.GPUs-left)
	}
	return nil
}

// freeGPUs returns the positions of the count GPUs on a node that none of the steps uses.
func freeGPUs(rank int32, count int, steps []*Step) []int32 {
	used := make([]bool, count)
	for _, s := range steps {
		if i := s.On(int(rank)); i >= 0 && !s.Nodes[i].Ended {
			for _, g := range s.Nodes[i].GPUs {
				used[g] = true
			}
		}
	}
	free := make([]int32, 0, count)
	for g, taken := range used {
		if !taken {
			free = append(free, int32(g))
		}
	}
	return free
}
