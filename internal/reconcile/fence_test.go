package reconcile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// world is a controller, a network that loses, repeats and reorders messages, and a node whose
// daemon may die at any instant and lose all but records and processes.
type world struct {
	t       *testing.T
	rand    *rand.Rand
	now     cluster.Instant
	version uint64
	truth   map[ID]*Wanted // the controllers' desired state
	next    cluster.JobID
	sent    []Set // every set ever sent; any of them may arrive at any time

	records map[ID]*Seen // survive the daemon, as floor and processes do
	floor   uint64
	running map[ID]bool
	starts  map[ID]int
	set     *Set // admitted since the daemon started
}

func TestConvergesAndStartsOnce(t *testing.T) {
	seeds := 2000
	if testing.Short() {
		seeds = 200
	}
	for seed := range seeds {
		w := &world{
			t: t, rand: rand.New(rand.NewPCG(uint64(seed), 7)), truth: map[ID]*Wanted{}, next: 1,
			records: map[ID]*Seen{}, running: map[ID]bool{}, starts: map[ID]int{},
		}
		for range 60 {
			w.step()
		}
		w.settle(seed)
	}
}

// step performs one random event.
func (w *world) step() {
	w.now += cluster.Instant(w.rand.Int64N(int64(KillAgain)))
	switch w.rand.IntN(6) {
	case 0, 1:
		w.change()
	case 2, 3: // any set that was ever sent arrives, perhaps again
		if len(w.sent) > 0 {
			w.receive(w.sent[w.rand.IntN(len(w.sent))])
		}
	case 4: // a process ends by itself
		for id := range w.running {
			w.end(id)
			break
		}
	case 5: // the daemon is killed and started again
		w.set = nil
		for id, s := range w.records {
			s.Work, s.NotBefore, s.Killed = NoWork, 0, 0
			if s.Phase == Accepted && w.running[id] {
				s.Phase = Started
			}
		}
	}
	w.act(w.rand.IntN(4))
}

// change is a commit of the controllers. They never want again what they stopped wanting, and stop
// wanting a stopped task once it is clean.
func (w *world) change() {
	w.version++
	switch w.rand.IntN(3) {
	case 0:
		id := ID{Job: w.next, Attempt: 1}
		w.next++
		w.truth[id] = &Wanted{ID: id}
	case 1:
		for _, wanted := range w.truth {
			wanted.Stop = true
			break
		}
	case 2:
		w.report()
	}
	set := Set{Version: w.version}
	for _, wanted := range w.truth {
		set.Tasks = append(set.Tasks, *wanted)
	}
	w.sent = append(w.sent, set)
}

// report makes clean tasks durable; a node that is DOWN loses its tasks.
func (w *world) report() {
	giveUp := w.rand.IntN(10) == 0
	for id := range w.truth {
		if s := w.records[id]; giveUp || s != nil && s.Phase == Clean {
			delete(w.truth, id)
		}
	}
}

func (w *world) receive(set Set) {
	if Admit(set.Version, w.floor) {
		w.set = &set
		w.floor = set.Version
	}
}

func (w *world) end(id ID) {
	delete(w.running, id)
	if s := w.records[id]; s != nil && s.Phase < Ended {
		s.Phase = Ended
	}
}

// act runs at most n actions, since a daemon may die between any two.
func (w *world) act(n int) {
	seen := make([]Seen, 0, len(w.records))
	for _, s := range w.records {
		seen = append(seen, *s)
	}
	actions, _ := Diff(w.set, seen, w.now)
	for _, a := range actions[:min(n, len(actions))] {
		w.execute(a)
	}
}

func (w *world) execute(a Action) {
	s := w.records[a.ID]
	switch a.Kind {
	case Accept:
		w.records[a.ID] = &Seen{ID: a.ID, Phase: Accepted}
	case Decline, Disown:
		w.records[a.ID] = &Seen{ID: a.ID, Phase: Clean}
	case Start:
		if w.rand.IntN(4) == 0 {
			s.NotBefore = w.now + 1
			return // it failed; nothing runs
		}
		w.starts[a.ID]++
		w.running[a.ID] = true
		s.Phase = Started
	case Stop:
		s.KillAt = a.KillAt
	case Kill:
		w.end(a.ID)
	case Remove:
		delete(w.running, a.ID)
		s.Phase = Clean
	case Forget:
		delete(w.records, a.ID)
	}
}

// settle delivers the last set and lets the node work until nothing is left to do. Then the running
// tasks are exactly the wanted ones that did not end by themselves.
func (w *world) settle(seed int) {
	w.version++
	set := Set{Version: w.version}
	for _, wanted := range w.truth {
		set.Tasks = append(set.Tasks, *wanted)
	}
	w.receive(set)
	for range 200 {
		w.now += cluster.Instant(KillAgain)
		w.act(100)
	}
	for id, n := range w.starts {
		if n > 1 {
			w.t.Fatalf("seed %d: %v started %d times", seed, id, n)
		}
	}
	var left []string
	for id := range w.running {
		if wanted := w.truth[id]; wanted == nil || wanted.Stop {
			left = append(left, fmt.Sprint(id, " runs and should not"))
		}
	}
	for id := range w.records {
		if w.truth[id] == nil {
			left = append(left, fmt.Sprint(id, " is remembered permanently"))
		}
	}
	for id, wanted := range w.truth {
		if s := w.records[id]; s == nil || s.Phase == Accepted || wanted.Stop && s.Phase != Clean {
			left = append(left, fmt.Sprint(id, " was not dealt with"))
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		w.t.Fatalf("seed %d: %v", seed, left)
	}
}
