package controller

import (
	"errors"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// The journal is written in a newer form when every member knows it, soon after the last of
// them does, and not before.
func TestFormOfTheJournalWaitsForAllMembers(t *testing.T) {
	simulated(t, true, func(r *rig, log *soloLog) {
		time.Sleep(time.Hour)
		if form := r.replica.View().Credits().Writes(); form == accounting.Form {
			t.Fatalf("form %d, and a member of another version would write another", form)
		}
		log.other.Store(false)
		time.Sleep(alikeSpacing + 2*tickSpacing)
		if form := r.replica.View().Credits().Writes(); form != accounting.Form {
			t.Fatalf("form %d, want %d", form, accounting.Form)
		}
	})
}

// A member that does not answer holds up nothing but the form: what falls due happens within
// a second.
func TestTimePassesWhileAMemberIsAway(t *testing.T) {
	simulated(t, true, func(r *rig, log *soloLog) {
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

// What only a newer version knows ends a member, who would be another than the others
// without it; what is no command at all is refused by all of them.
func TestCommandOfANewerVersion(t *testing.T) {
	r := NewReplica(discard{}, nil)
	newer := command.Encode(&command.Tick{Form: accounting.Form + 1})
	for name, data := range map[string][]byte{"form": newer, "kind": {1, 250}} {
		answer, is := r.Apply(1, 1, [][]byte{data})[0].(error)
		if !is || !errors.Is(answer, raftlog.ErrNewer) {
			t.Errorf("%s: answered %v", name, answer)
		}
	}
	if answer, is := r.Apply(1, 1, [][]byte{{}})[0].(error); !is || errors.Is(answer, raftlog.ErrNewer) {
		t.Errorf("nothing at all: answered %v", answer)
	}
}
