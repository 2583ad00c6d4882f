package raftlog

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// lone returns a machine without a log; stops collects why it stopped.
func lone(t *testing.T) (m *machine, fsm *journal, stops *[]string) {
	t.Helper()
	fsm, stops = &journal{}, new([]string)
	m = newMachine(fsm, &snapshots{})
	m.halt = func(_ int, damaged bool, reason string) {
		if damaged {
			reason = "damaged: " + reason
		}
		*stops = append(*stops, reason)
	}
	m.joined = func(configuration) {}
	return m, fsm, stops
}

func TestNothingReachesTheStateAfterADamagedEntry(t *testing.T) {
	m, fsm, stops := lone(t)
	m.Apply(entryLog(1, "good"))
	bad := entryLog(2, "bad")
	bad.Data[14] ^= 1
	for _, log := range []*raft.Log{bad, entryLog(3, "after")} {
		if err, _ := m.Apply(log).(error); !errors.Is(err, errHalted) {
			t.Errorf("entry %d: %v", log.Index, err)
		}
	}
	if got := strings.Join(fsm.list(), " "); got != "good" {
		t.Errorf("state %s", got)
	}
	if len(*stops) != 1 || !strings.HasPrefix((*stops)[0], "damaged: entry 2") {
		t.Errorf("stopped with %q", *stops)
	}
	if _, err := m.Snapshot(); !errors.Is(err, errHalted) {
		t.Errorf("snapshot of a stopped state: %v", err)
	}
}

func TestEntryOfANewerVersionStopsWithoutDamage(t *testing.T) {
	m, fsm, stops := lone(t)
	m.Apply(&raft.Log{Index: 1, Type: raft.LogCommand, Data: envelope{kind: 77}.encode()})
	if len(*stops) != 1 || !strings.HasPrefix((*stops)[0], "entry 1: entry was written by a newer version") || len(fsm.list()) != 0 {
		t.Errorf("stopped with %q, state %v", *stops, fsm.list())
	}
}

func TestCommandOfANewerVersionStopsWithoutDamage(t *testing.T) {
	m, fsm, stops := lone(t)
	fsm.newerOn = "new"
	m.Apply(entryLog(1, "new"))
	m.Apply(entryLog(2, "old"))
	if len(*stops) != 1 || !strings.HasSuffix((*stops)[0], "in use: upgrade this member first") || strings.HasPrefix((*stops)[0], "damaged") || len(fsm.list()) != 0 {
		t.Errorf("stopped with %q, state %v", *stops, fsm.list())
	}
}

// TestSnapshotOfAnotherStateIsRefused checks that a snapshot whose content does not match its head
// does not become the state.
func TestSnapshotOfAnotherStateIsRefused(t *testing.T) {
	m, _, stops := lone(t)
	snap := frames(t, snapshotHead{Index: 5, Digest: 12345}, []byte("\x05hello"))
	if err := m.Restore(io.NopCloser(bytes.NewReader(snap))); !errors.Is(err, errSnapshot) {
		t.Fatalf("restored: %v", err)
	}
	m.Apply(entryLog(6, "x"))
	if len(*stops) != 1 || !strings.Contains((*stops)[0], "restore snapshot") {
		t.Errorf("an undefined state went on: %q", *stops)
	}
}
