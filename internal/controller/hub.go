package controller

import (
	"sync"

	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxChanges is the number of changes that a subscription remembers. A reader further behind reads
// everything again.
const maxChanges = 10_000

// hub sends changes to subscribers. The zero value is ready for use.
type hub struct {
	mu     sync.Mutex
	all    map[*Subscription]struct{}
	byNode map[string]map[*Subscription]struct{}
}

// Subscription is level-triggered: it remembers what changed since the last Take, not how often. A
// View taken after Take contains everything that Take returned.
type Subscription struct {
	hub  *hub
	node string
	// only, if set, makes the subscription signal changes that only accepts, and remember none.
	only func(*state.Change) bool
	// omit, if set, leaves out the changes that it accepts.
	omit func(*state.Change) bool
	ring chan struct{}

	mu      sync.Mutex
	changes []state.Change
	at      map[subject]int
	resync  bool
}

// subject identifies what a change is about.
type subject struct {
	kind state.ChangeKind
	job  cluster.JobID
	node string
}

// subscribe follows the changes of one node, or all changes if node is "".
func (h *hub) subscribe(node string, only func(*state.Change) bool) *Subscription {
	return h.add(&Subscription{node: node, only: only})
}

// add begins a subscription with the fields node, only and omit.
func (h *hub) add(s *Subscription) *Subscription {
	s.hub, s.ring = h, make(chan struct{}, 1)
	node := s.node
	h.mu.Lock()
	defer h.mu.Unlock()
	if node == "" {
		if h.all == nil {
			h.all = map[*Subscription]struct{}{}
		}
		h.all[s] = struct{}{}
		return s
	}
	if h.byNode == nil {
		h.byNode = map[string]map[*Subscription]struct{}{}
	}
	if h.byNode[node] == nil {
		h.byNode[node] = map[*Subscription]struct{}{}
	}
	h.byNode[node][s] = struct{}{}
	return s
}

// Close ends the subscription.
func (s *Subscription) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, s)
	delete(h.byNode[s.node], s)
	if len(h.byNode[s.node]) == 0 {
		delete(h.byNode, s.node)
	}
}

// C receives when there is something to take.
func (s *Subscription) C() <-chan struct{} { return s.ring }

// Take returns the changes since the last call: one for each job and node, with the first Old and
// the last New. If resync is true, too much changed: anything may be different.
func (s *Subscription) Take() (changed []state.Change, resync bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, resync = s.changes, s.resync
	s.changes, s.at, s.resync = nil, nil, false
	return changed, resync
}

// publish sends changes to subscribers.
func (h *hub) publish(changes []state.Change) {
	if len(changes) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		for s := range h.all {
			s.add(c)
		}
		if len(h.byNode) == 0 {
			continue
		}
		for s := range h.byNode[c.Node] {
			s.add(c)
		}
		if c.Node == "" {
			h.tellNodes(c, c.Old, nil)
			h.tellNodes(c, c.New, c.Old)
		}
	}
}

// tellNodes sends a change to the subscribers of a job's nodes, except those of another job.
func (h *hub) tellNodes(c *state.Change, job, known *cluster.Job) {
	if job == nil || job.Alloc == nil || known != nil && known.Alloc == job.Alloc {
		return
	}
	for i := range job.Alloc.Nodes {
		for s := range h.byNode[job.Alloc.Nodes[i].Node] {
			s.add(c) // repeated additions have no effect
		}
	}
}

// resync makes all subscribers read everything again.
func (h *hub) resync() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.all {
		s.overflow()
	}
	for _, subscribers := range h.byNode {
		for s := range subscribers {
			s.overflow()
		}
	}
}

func (s *Subscription) overflow() {
	s.mu.Lock()
	s.changes, s.at, s.resync = nil, nil, true
	s.mu.Unlock()
	s.bell()
}

func (s *Subscription) bell() {
	select {
	case s.ring <- struct{}{}:
	default:
	}
}

func (s *Subscription) add(c *state.Change) {
	if s.omit != nil && s.omit(c) {
		return
	}
	if s.only != nil {
		if s.only(c) {
			s.bell()
		}
		return
	}
	s.mu.Lock()
	key := subject{kind: c.Kind, job: c.Job}
	if c.Kind == state.NodeChanged {
		key.node = c.Node
	}
	i, known := s.at[key]
	switch {
	case s.resync:
	case known:
		old := &s.changes[i]
		if old.New = c.New; old.Node != c.Node {
			old.Node = "" // the tasks of several nodes
		}
	case len(s.changes) == maxChanges:
		s.changes, s.at, s.resync = nil, nil, true
	default:
		if s.at == nil {
			s.at = map[subject]int{}
		}
		s.at[key] = len(s.changes)
		s.changes = append(s.changes, *c)
	}
	s.mu.Unlock()
	s.bell()
}
