package cluster

import (
	"errors"
	"strings"
	"testing"
)

func TestEveryStateAndEventHasItsName(t *testing.T) {
	for s := Pending; s <= maxJobState; s++ {
		for _, word := range []string{s.String(), s.Code(), strings.ToLower(s.String())} {
			if got, err := ParseJobState(word); err != nil || got != s {
				t.Errorf("%q is %s, %v, want %s", word, got, err, s)
			}
		}
		if s.Final() == (s <= Completing) {
			t.Errorf("%s: final %v", s, s.Final())
		}
	}
	for e := Start; e <= maxEvent; e++ {
		if e.String() == "" || strings.HasPrefix(e.String(), "Event(") {
			t.Errorf("event %d has no name", e)
		}
	}
	for r := ReasonNone; r <= maxReason; r++ {
		if r.String() == "" || strings.HasPrefix(r.String(), "Reason(") {
			t.Errorf("reason %d has no name", r)
		}
	}
	for _, odd := range []string{JobState(0).String(), JobState(99).String(), JobEvent(99).String(), Reason(99).String(), TaskCause(99).String(), NodeState(99).String(), DependencyKind(99).String()} {
		if odd == "" {
			t.Error("an unknown value has no text")
		}
	}
	if _, err := ParseJobState("DONE"); !errors.Is(err, ErrUnknownState) {
		t.Errorf("DONE: %v", err)
	}
}

// TestTransitions walks every path: each job ends, nothing leaves a final state,
// and an allocation is held exactly from Start to the end of COMPLETING.
func TestTransitions(t *testing.T) {
	reached := map[JobState]bool{Pending: true}
	for again := true; again; {
		again = false
		for s := Pending; s <= maxJobState; s++ {
			for e := JobEvent(0); e <= maxEvent+1; e++ {
				to, err := NextState(s, e)
				switch {
				case err != nil && (to != s || !errors.Is(err, ErrIllegalTransition)):
					t.Fatalf("%s %s: %s, %v", s, e, to, err)
				case err != nil || !reached[s]:
					continue
				case s.Final():
					t.Fatalf("%s is final and can %s", s, e)
				}
				again = again || !reached[to]
				reached[to] = true
			}
		}
	}
	for s := Pending; s <= maxJobState; s++ {
		if !reached[s] {
			t.Errorf("no job ever is %s", s)
		}
		e, known := Ending(s)
		if known != s.Final() {
			t.Errorf("%s: ends COMPLETING %v", s, known)
		}
		if to, err := NextState(Completing, e); known && (err != nil || to != s) {
			t.Errorf("%s leads to %s, %v", e, to, err)
		}
	}
}
