package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
)

func frames(t testing.TB, head snapshotHead, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := &frameWriter{w: &b}
	if err := w.frame(head.encode()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.frame(nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFramesComeBackWhole(t *testing.T) {
	body := bytes.Repeat([]byte("greylag "), 100_000) // several frames
	snap := frames(t, snapshotHead{Index: 7, Digest: 8, DigestVersion: 3}, body)
	r, head, err := openFrames(bytes.NewReader(snap))
	if err != nil || head != (snapshotHead{Index: 7, Digest: 8, DigestVersion: 3}) {
		t.Fatalf("head %+v, %v", head, err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	for i := 0; i < len(snap); i += 1009 {
		bad := slices.Clone(snap)
		bad[i] ^= 0x10
		if _, err := checkSnapshot(bytes.NewReader(bad)); err == nil {
			t.Fatalf("byte %d changed: not noticed", i)
		}
	}
	if _, err := checkSnapshot(bytes.NewReader(snap[:len(snap)-8])); !errors.Is(err, errSnapshot) {
		t.Errorf("cut off: %v", err)
	}
}

// TestGoldenSnapshots reads snapshots of released versions; they must stay readable.
func TestGoldenSnapshots(t *testing.T) {
	files, err := filepath.Glob("testdata/snapshot-v*.bin")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden snapshot: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, head, err := openFrames(bytes.NewReader(data))
		if err != nil || head != (snapshotHead{Index: 7, Digest: 8}) {
			t.Fatalf("%s: head %+v, %v", file, head, err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != "the state" {
			t.Errorf("%s: %q, %v", file, got, err)
		}
		if file == "testdata/snapshot-v1.bin" && !bytes.Equal(frames(t, head, []byte("the state")), data) {
			t.Errorf("%s: written differently now", file)
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	f.Add(frames(f, snapshotHead{Index: 1, Digest: 2}, []byte("state")))
	f.Fuzz(func(_ *testing.T, b []byte) {
		checkSnapshot(bytes.NewReader(b)) // must neither panic nor read without end
	})
}

// snapshotFiles returns the state files of the snapshots, newest first.
func snapshotFiles(t *testing.T, n *node) []string {
	t.Helper()
	list, err := n.machine.snap.List()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, meta := range list {
		files = append(files, filepath.Join(n.cfg.Dir, snapshotDir, meta.ID, "state.bin"))
	}
	return files
}

func damage(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		data[len(data)/2] ^= 1
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// alone starts a single member that drops as much as possible at every snapshot.
func alone(t *testing.T, snapshots int) (*fleet, []string) {
	t.Helper()
	f := newFleet(t, func(c *Config) { c.TrailingLogs = 1 })
	f.grow(1)
	var want []string
	for i := range snapshots * 10 {
		want = append(want, fmt.Sprint("command ", i))
		f.propose(want[i])
		if i%10 == 9 {
			f.must(f.leader().SnapshotNow(f.ctx()))
		}
	}
	return f, want
}

func TestDamagedSnapshotFallsBackToAnOlderOneAndTheLog(t *testing.T) {
	t.Parallel()
	f, want := alone(t, 5)
	defer f.close()
	n := f.leader()
	files := snapshotFiles(t, n)
	if first, _ := n.store.FirstIndex(); len(files) != 3 || first < 20 {
		t.Fatalf("%d snapshots, log begins at %d: nothing was forgotten", len(files), first)
	}
	n.Close()
	damage(t, files[0])
	damage(t, files[1])
	n = f.restart(n)
	f.until("replay from the third snapshot", func() bool { return slices.Equal(n.fsm.list(), want) })
}

func TestLoneMemberWithoutAWholeSnapshotStopsAndKeepsItsData(t *testing.T) {
	t.Parallel()
	f, _ := alone(t, 4)
	n := f.leader()
	files := snapshotFiles(t, n)
	n.Close()
	for _, file := range files {
		damage(t, file)
	}
	again, err := f.open(n.cfg, &journal{})
	if !errors.Is(err, ErrDamaged) {
		t.Fatalf("opened: %v", err)
	}
	if reason := <-again.fatal; reason[:2] != "76" {
		t.Errorf("ended with %s", reason)
	}
	if _, err := os.Stat(filepath.Join(n.cfg.Dir, quarantineFile)); err == nil {
		t.Error("the only copy there is was marked to be set aside")
	}
}

// TestSnapshotReachesANewMember checks that a learner that joins late gets a snapshot and the log
// after it.
func TestSnapshotReachesANewMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, func(c *Config) { c.TrailingLogs, c.SnapshotRetain = 1, 1 })
		defer f.close()
		f.grow(1)
		for i := range 30 {
			f.propose(fmt.Sprint("command ", i))
		}
		f.must(f.leader().SnapshotNow(f.ctx()))
		if first, _ := f.leader().store.FirstIndex(); first < 20 {
			t.Fatalf("log begins at %d: no snapshot would be needed", first)
		}
		f.propose("after")
		late := f.start(f.config("late"))
		f.must(f.leader().AddMember(f.ctx(), "late", late.cfg.Addr))
		if got := f.same(); len(got) != 31 {
			t.Errorf("%d commands", len(got))
		}
		f.must(late.WaitApplied(f.ctx(), f.propose("live")))
	})
}
