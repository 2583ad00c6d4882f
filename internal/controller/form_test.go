package controller

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestSecondForm introduces form 2 of the journal of credits: it is written when every member
// knows it, soon after the last of them does, and not before. A member that does not know it
// stops at the entry, and refuses a snapshot that was made after it.
func TestSecondForm(t *testing.T) {
	simulated(t, 2, func(r *rig, log *soloLog) {
		time.Sleep(time.Hour)
		if form := r.replica.View().Credits().Format(); form != 1 {
			t.Fatalf("form %d, and a member of another version would write another", form)
		}
		log.other.Store(false)
		time.Sleep(formCheckSpacing + 2*tickSpacing)
		if form := r.replica.View().Credits().Format(); form != 2 {
			t.Fatalf("form %d, want 2", form)
		}
		older := NewReplica(discard{}, nil)
		answer, is := older.Apply(1, 1, [][]byte{command.Encode(&command.Tick{Form: 2})})[0].(error)
		if !is || !errors.Is(answer, raftlog.ErrNewer) {
			t.Errorf("an older member answered %v", answer)
		}
		var snapshot bytes.Buffer
		if err := r.replica.View().Encode(&snapshot); err != nil {
			t.Fatal(err)
		}
		if err := older.Restore(&snapshot); !errors.Is(err, state.ErrUnsupported) {
			t.Errorf("an older member restores it: %v", err)
		}
	})
}

// TestTimePassesWhileAMemberIsAway: a member that does not answer delays only the form; what is due happens within
// a second.
func TestTimePassesWhileAMemberIsAway(t *testing.T) {
	simulated(t, 2, func(r *rig, _ *soloLog) {
		r.node("n1", 40)
		defer r.stayInTouch("n1")()
		for range 40 { // all over the ten seconds between two questions
			id := r.submit(func(s *cluster.JobSpec) { s.TimeLimit = time.Minute })
			time.Sleep(time.Minute + tickSpacing + 200*time.Millisecond)
			if j := r.job(id); j.State != cluster.Completing {
				t.Fatalf("the job is %s more than a second beyond its limit", j.State)
			}
			time.Sleep(250 * time.Millisecond)
		}
	})
}

// TestCommandOfANewerVersion: an unknown command of a newer version ends a member, whose state would diverge
// without it; what is no command at all is refused by all of them.
func TestCommandOfANewerVersion(t *testing.T) {
	r := NewReplica(discard{}, nil)
	if answer, is := r.Apply(1, 1, [][]byte{{0x41, 250, 0}})[0].(error); !is || !errors.Is(answer, raftlog.ErrNewer) {
		t.Errorf("a kind that is not known: answered %v", answer)
	}
	if answer, is := r.Apply(1, 1, [][]byte{{}})[0].(error); !is || errors.Is(answer, raftlog.ErrNewer) {
		t.Errorf("nothing at all: answered %v", answer)
	}
}
