package controller

import (
	"errors"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/pkg/accounting"
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
