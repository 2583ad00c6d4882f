package raftlog

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// openDamaged opens a member whose directory must be found damaged.
func openDamaged(f *fleet, n *node) {
	f.t.Helper()
	fsm := &journal{}
	bad, err := f.open(n.cfg, fsm)
	if !errors.Is(err, ErrDamaged) {
		f.t.Fatalf("opened: %v", err)
	}
	if r := <-bad.fatal; !strings.HasPrefix(r, "76 ") {
		f.t.Errorf("ended with %s", r)
	}
	if slices.ContainsFunc(fsm.list(), func(c string) bool { return strings.HasPrefix(c, "command") && c != "command one" }) {
		f.t.Errorf("a damaged entry reached the state machine: %q", fsm.list())
	}
}

// TestFlippedBitInALogSetsTheDataAside flips a bit of raft.db while a member of a cluster is down.
func TestFlippedBitInALogSetsTheDataAside(t *testing.T) {
	t.Parallel()
	f := newFleet(t, steady)
	defer f.close()
	f.grow(3)
	for _, c := range []string{"command one", "command two", "command three"} {
		f.propose(c)
	}
	sick := f.followers()[0]
	f.must(sick.WaitApplied(f.ctx(), f.leader().Status().CommitIndex))
	sick.Close()
	if flip(t, filepath.Join(sick.cfg.Dir, databaseFile), "command two") == 0 {
		t.Fatal("the command is not in the file")
	}
	openDamaged(f, sick)
	back := f.restart(sick)
	if !back.Status().Fresh {
		t.Errorf("came back with state: %+v", back.Status())
	}
	f.change("the removal", func(leader *node) error { return leader.RemoveMember(f.ctx(), sick.self.ID) })
	f.add(sick.self.ID, sick.cfg.Addr)
	if got := f.same(); len(got) != 3 {
		t.Errorf("state %q", got)
	}
}

// TestFlippedBitInALoneLogNeedsRecover checks that a lone member stops too, keeps its data, and
// that Recover reports what is lost.
func TestFlippedBitInALoneLogNeedsRecover(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	defer f.close()
	f.grow(1)
	for _, c := range []string{"command one", "command two", "command three"} {
		f.propose(c)
	}
	n := f.leader()
	last := n.Status().LastIndex
	n.Close()
	flip(t, filepath.Join(n.cfg.Dir, databaseFile), "command two")
	openDamaged(f, n)
	openDamaged(f, n)
	would, _, err := Recoverable(n.cfg)
	if err != nil || would.DamagedTo != last || would.DamagedFrom != would.LastIndex+1 || would.LastTerm == 0 {
		t.Fatalf("recoverable %+v, %v; the log ended at %d", would, err, last)
	}
	report, err := Recover(n.cfg, &journal{}, []Member{{n.self.ID, n.cfg.Addr, true}})
	if err != nil || report.DamagedTo != last || report.DamagedFrom != report.LastIndex+1 || report.LastIndex == 0 {
		t.Fatalf("recovery %+v, %v; the log ended at %d", report, err, last)
	}
	if text := report.String(); !strings.Contains(text, "were damaged and are lost") {
		t.Errorf("it says: %s", text)
	}
	f.restart(n)
	f.propose("again")
	if got := f.same(); !slices.Equal(got, []string{"command one", "again"}) {
		t.Errorf("state %q", got)
	}
}

// TestRecoverFromLostQuorum checks that the third member continues alone and accepts new ones after
// two of three are lost permanently.
func TestRecoverFromLostQuorum(t *testing.T) {
	t.Parallel()
	f := newFleet(t, steady)
	f.grow(3)
	f.propose("one")
	f.same() // all have it
	for _, n := range f.nodes {
		f.must(n.SnapshotNow(f.ctx()))
	}
	f.propose("two")
	want := f.same()
	survivor := f.followers()[1]
	f.close()
	if _, err := Recover(survivor.cfg, &journal{}, []Member{{"unknown", "x:1", true}}); err == nil {
		t.Error("recovered with a member that never was")
	}
	if _, err := Recover(f.config("empty"), &journal{}, []Member{{"empty", "x:1", true}}); err == nil {
		t.Error("recovered from nothing")
	}
	would, self, err := Recoverable(survivor.cfg)
	if err != nil || self != survivor.self.ID || len(would.Members) != 3 || would.Snapshot == 0 || would.Snapshot >= would.LastIndex {
		t.Fatalf("recoverable by %s: %+v, %v", self, would, err)
	}
	report, err := Recover(survivor.cfg, &journal{}, []Member{{survivor.self.ID, survivor.cfg.Addr, true}})
	if err != nil || report.DamagedFrom != 0 || report.LastIndex != would.LastIndex || report.LastTerm != would.LastTerm {
		t.Fatalf("recovery %+v, %v, which was to be %+v", report, err, would)
	}
	f.nodes = nil
	f.start(survivor.cfg)
	defer f.close()
	f.propose("three")
	f.add("new", f.start(f.config("new")).cfg.Addr)
	if got := f.same(); !slices.Equal(got, append(want, "three")) {
		t.Errorf("state %q", got)
	}
}

func TestOneProcessADirectory(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	defer f.close()
	f.grow(1)
	cfg := f.nodes[0].cfg
	cfg.Stream = f.net.listen("other:1")
	if _, err := f.open(cfg, &journal{}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("opened twice: %v", err)
	}
}
