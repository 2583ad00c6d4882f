package raftlog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

func TestReserveIsKeptAndGivenBack(t *testing.T) {
	dir := t.TempDir()
	r := newReserve(dir, 4<<20, quiet())
	for p, size := range map[reservePart]int64{reserveLog: 4 << 20, reserveVote: voteReserveBytes} {
		if info, err := os.Stat(r.path(p)); err != nil || info.Size() != size {
			t.Errorf("%s: %v, %v", r.path(p), info, err)
		}
	}
	if r.low.Load() || !r.release(reserveLog) || !r.low.Load() || r.release(reserveLog) {
		t.Error("the space is given once, and then the disk is low")
	}
	if _, err := os.Stat(r.path(reserveLog)); err == nil {
		t.Error("the space is not free")
	}
	if r.refresh(); r.low.Load() {
		t.Error("there is room again, and the disk is still low")
	}
	if r = newReserve(dir, 4<<20, quiet()); r.low.Load() || !r.held[reserveLog] {
		t.Error("what the last run held is not known")
	}
	if r = newReserve(t.TempDir(), -1, quiet()); r.low.Load() || r.release(reserveVote) {
		t.Error("no reserve was asked for")
	}
}

// TestFullDisk fills the disk of a lone member: first it reports that, then it uses its reserve,
// then callers get errors. It never ends, and continues when there is space.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := disk(t, `mount -t tmpfs -o size=40m tmpfs "$DIR"`)
	f := newFleet(t, func(c *Config) { c.ReserveBytes = 4 << 20 })
	cfg := f.config("full")
	cfg.Dir = filepath.Join(dir, "raft")
	n := f.start(cfg)
	defer f.close()
	f.must(n.Bootstrap())
	kept := []uint64{f.propose("0")}
	big := bytes.Repeat([]byte("x"), 512<<10)
	ballast := filepath.Join(dir, "ballast")
	fillUp(t, ballast)
	f.until("a warning, and that no other member has space", func() bool { return n.Status().DiskLow && n.NoVoterHasSpace() })
	var failed error
	for i := 0; i < 200 && failed == nil; i++ {
		var index uint64
		if _, index, failed = n.Propose(context.Background(), strconv.AppendInt(big, int64(i), 10)); failed == nil {
			kept = append(kept, index)
		}
	}
	if !errors.Is(failed, ErrOutcomeUnknown) || !errors.Is(failed, syscall.ENOSPC) {
		t.Errorf("a full disk answers %v", failed)
	}
	if len(kept) < 4 {
		t.Errorf("only %d entries fitted into the reserve", len(kept))
	}
	f.must(os.Remove(ballast))
	f.propose("after")
	f.until("the end of the warning", func() bool { return !n.Status().DiskLow && !n.NoVoterHasSpace() })
	if got := len(n.fsm.list()); got < len(kept)+1 || n.Err() != nil {
		t.Errorf("%d commands, %d acknowledged, %v", got, len(kept)+1, n.Err())
	}
	if again := f.restart(n); !again.Status().Fresh {
		f.until("replay", func() bool { return len(again.fsm.list()) >= len(kept)+1 })
	}
}

// smallLeader is a fleet whose leader has a small disk, mounted on dir.
func smallLeader(t *testing.T, members int, reserve int64) (f *fleet, full *node, dir string) {
	t.Helper()
	dir = disk(t, `mount -t tmpfs -o size=40m tmpfs "$DIR"`)
	f = newFleet(t, func(c *Config) {
		c.ReserveBytes = reserve
		steady(c)
		if c.ID == "a" {
			c.Dir = filepath.Join(dir, "raft")
		}
	})
	f.grow(members)
	full = f.nodes[0]
	if leader := f.leader(); leader != full {
		f.must(leader.Transfer(f.ctx(), full.self.ID))
		f.until("the leadership that the test wants", func() bool { return f.leader() == full })
	}
	return f, full, dir
}

// TestFullDiskOfTheLeader checks that another member leads when the leader's disk fills up.
func TestFullDiskOfTheLeader(t *testing.T) {
	t.Parallel()
	f, full, dir := smallLeader(t, 3, 4<<20)
	defer f.close()
	ballast := filepath.Join(dir, "ballast")
	fillUp(t, ballast)
	f.until("another leader", func() bool { return f.leader() != full })
	f.propose("goes on")
	if full.NoVoterHasSpace() {
		t.Error("others have room, and it says that none has")
	}
	f.must(os.Remove(ballast))
	f.until("the end of the warning", func() bool { return !full.Status().DiskLow })
}

// TestFullDiskWithoutReserve checks that a leader with a full disk refuses entries and survives
// without a reserve, too.
func TestFullDiskWithoutReserve(t *testing.T) {
	t.Parallel()
	f, full, dir := smallLeader(t, 2, -1)
	defer f.close()
	ballast, big := filepath.Join(dir, "ballast"), bytes.Repeat([]byte("x"), 512<<10)
	fillUp(t, ballast)
	var failed error
	for i := 0; i < 200 && failed == nil; i++ { // the database has some pages to spare
		_, _, failed = full.Propose(f.ctx(), strconv.AppendInt(big, int64(i), 10))
	}
	if failed == nil || full.Err() != nil || len(full.fatal) > 0 {
		t.Errorf("callers hear %v; it stopped: %v", failed, full.Err())
	}
	f.must(os.Remove(ballast))
	f.until("agreement when there is room again", func() bool {
		_, _, err := f.leader().Propose(f.ctx(), []byte("after"))
		return err == nil
	})
	f.same()
}

func fillUp(t *testing.T, path string) {
	t.Helper()
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, endless{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
