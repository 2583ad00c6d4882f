package raftlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// stopped returns a stopped follower of three, with all entries on its disk. With snapshots its log
// no longer begins at entry 1.
func stopped(t *testing.T, withSnapshots bool) (f *fleet, n *node, last uint64) {
	t.Helper()
	f = newFleet(t, func(c *Config) {
		steady(c)
		c.SnapshotRetain, c.TrailingLogs = 1, 1
	})
	f.grow(3)
	for i := range 30 {
		f.propose(fmt.Sprintf("command %d %s", i, strings.Repeat("x", i*400)))
	}
	f.same()
	n = f.followers()[0]
	if withSnapshots {
		f.must(n.SnapshotNow(f.ctx()))
		f.propose("later")
	}
	f.must(n.WaitApplied(f.ctx(), f.leader().Status().CommitIndex))
	f.close()
	last = n.Status().LastIndex
	f.nodes = nil
	return f, n, last
}

// copied returns the configuration of a member on a copy of its directory.
func copied(t *testing.T, n *node) Config {
	t.Helper()
	cfg := n.cfg
	cfg.Dir, cfg.Stream = t.TempDir(), nil
	if err := os.CopyFS(cfg.Dir, os.DirFS(n.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// startsAfresh checks that the next start sets the data aside.
func startsAfresh(f *fleet, cfg Config) {
	f.t.Helper()
	n, err := f.open(cfg, &journal{})
	if err != nil {
		f.t.Fatal(err)
	}
	defer n.Close()
	aside, _ := filepath.Glob(filepath.Join(cfg.Dir, "quarantine-*", identityFile))
	if !n.Status().Fresh || len(aside) != 1 {
		f.t.Errorf("fresh %v, set aside %q", n.Status().Fresh, aside)
	}
}

// changeDB changes raft.db as a stopped member left it.
func changeDB(t *testing.T, dir string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, databaseFile), 0o600, &bbolt.Options{Timeout: time.Second, NoFreelistSync: true})
	if err == nil {
		err = errors.Join(db.Update(change), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// losses are ways to lose a log, or a part of it, that leave identity.json.
var losses = map[string]func(t *testing.T, dir string) error{
	"log missing": func(_ *testing.T, dir string) error { return os.Remove(filepath.Join(dir, databaseFile)) },
	"log empty":   func(_ *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, databaseFile), 0) },
	"log is not bbolt's": func(_ *testing.T, dir string) error {
		return os.WriteFile(filepath.Join(dir, databaseFile), make([]byte, 1<<20), 0o600)
	},
	"log is new": func(_ *testing.T, dir string) error {
		if err := os.Remove(filepath.Join(dir, databaseFile)); err != nil {
			return err
		}
		s, err := openStore(dir, newReserve(dir, 0, quiet()))
		if err != nil {
			return err
		}
		return s.close()
	},
	"entries lost": func(t *testing.T, dir string) error {
		changeDB(t, dir, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("logs")) })
		return nil
	},
	"vote lost": func(t *testing.T, dir string) error {
		changeDB(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("conf")).Delete(keyVoteTerm) })
		return nil
	},
	"term lost": func(t *testing.T, dir string) error {
		changeDB(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("conf")).Delete(keyTerm) })
		return nil
	},
	"newest meta page invalid": func(_ *testing.T, dir string) error {
		h, err := os.OpenFile(filepath.Join(dir, databaseFile), os.O_RDWR, 0)
		if err == nil {
			_, err = h.WriteAt(make([]byte, 64), 4096+16)
		}
		return errors.Join(err, h.Close())
	},
}

func TestMemberWithoutItsLogNeverComesBackUnderItsID(t *testing.T) {
	t.Parallel()
	for _, withSnapshots := range []bool{false, true} {
		f, n, _ := stopped(t, withSnapshots)
		for name, lose := range losses {
			t.Run(fmt.Sprintf("%s, snapshots %v", name, withSnapshots), func(t *testing.T) {
				f.t = t
				cfg := copied(t, n)
				if err := lose(t, cfg.Dir); err != nil {
					t.Fatal(err)
				}
				openDamaged(f, &node{cfg: cfg})
				startsAfresh(f, cfg)
			})
		}
	}
}

// TestLogCutShort checks that a log cut anywhere either starts with all its entries or is refused.
func TestLogCutShort(t *testing.T) {
	if testing.Short() {
		t.Skip("sequential, and too long for -short")
	}
	t.Parallel()
	f, n, last := stopped(t, false)
	refused := 0
	for percent := 0; percent < 100; percent += 5 {
		cfg := copied(t, n)
		path := filepath.Join(cfg.Dir, databaseFile)
		info, err := os.Stat(path)
		if err == nil {
			err = os.Truncate(path, info.Size()*int64(percent)/100)
		}
		if err != nil {
			t.Fatal(err)
		}
		refused += opensWholeOrDamaged(f, cfg, last)
	}
	if refused == 0 || refused == 20 {
		t.Errorf("%d of 20 were refused: the test proves nothing", refused)
	}
}

func TestLogWithFlippedBits(t *testing.T) {
	if testing.Short() {
		t.Skip("sequential, and too long for -short")
	}
	t.Parallel()
	f, n, last := stopped(t, true)
	data, err := os.ReadFile(filepath.Join(n.cfg.Dir, databaseFile))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for seed := range 60 {
		random := rand.New(rand.NewPCG(uint64(seed), 7))
		cfg := copied(t, n)
		bad := append([]byte{}, data...)
		for range 1 + random.IntN(200) {
			bad[random.IntN(len(bad))] ^= 1 << random.IntN(8)
		}
		if err := os.WriteFile(filepath.Join(cfg.Dir, databaseFile), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		refused += opensWholeOrDamaged(f, cfg, last)
	}
	if refused == 0 {
		t.Error("none was refused: the test proves nothing")
	}
}

// opensWholeOrDamaged returns 1 if the directory is refused as damaged, and 0 if it
// opens with everything up to last.
func opensWholeOrDamaged(f *fleet, cfg Config, last uint64) int {
	f.t.Helper()
	n, err := f.open(cfg, &journal{})
	if err == nil {
		defer n.Close()
		if got := n.Status().LastIndex; got != last {
			f.t.Errorf("started with entries up to %d, not %d", got, last)
		}
		return 0
	}
	if !errors.Is(err, ErrDamaged) {
		f.t.Errorf("opened: %v", err)
	} else if r := <-n.fatal; !strings.HasPrefix(r, "76 ") {
		f.t.Errorf("ended with %s", r)
	}
	return 1
}

func TestSnapshotsGone(t *testing.T) {
	t.Parallel()
	f, n, _ := stopped(t, true)
	cfg := copied(t, n)
	f.must(os.RemoveAll(filepath.Join(cfg.Dir, snapshotDir)))
	openDamaged(f, &node{cfg: cfg})
	// The log does not begin at entry 1, so recover has nothing to build on.
	if _, _, err := Recoverable(cfg); err == nil || !strings.Contains(err.Error(), "gctld restore") {
		t.Errorf("recoverable: %v", err)
	}
	startsAfresh(f, cfg)
}

// TestLogOlderThanItsSnapshots puts an older copy of the log under newer snapshots.
func TestLogOlderThanItsSnapshots(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *Config) { steady(c); c.TrailingLogs = 1 })
	f.grow(3)
	f.propose("one")
	f.same()
	n := f.followers()[0]
	f.must(n.Close())
	old, err := os.ReadFile(filepath.Join(n.cfg.Dir, databaseFile))
	f.must(err)
	n = f.restart(n)
	for i := range 20 {
		f.propose(fmt.Sprint("two ", i))
	}
	f.must(n.WaitApplied(f.ctx(), f.leader().Status().CommitIndex))
	f.must(n.SnapshotNow(f.ctx()))
	f.close()
	f.must(os.WriteFile(filepath.Join(n.cfg.Dir, databaseFile), old, 0o600))
	openDamaged(f, n)
}

func TestCrashWhileTheLogIsCreated(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	for name, content := range map[string][]byte{"none": nil, "empty": {}, "half": make([]byte, 8192)} {
		cfg := f.config("a")
		self, err := createIdentity(cfg, filepath.Join(cfg.Dir, identityFile))
		if err != nil || self.HasLog {
			t.Fatalf("%+v, %v", self, err)
		}
		if name != "none" {
			f.must(os.WriteFile(filepath.Join(cfg.Dir, databaseFile), content, 0o600))
		}
		n := f.start(cfg)
		if self, err = loadIdentity(cfg); err != nil || !self.HasLog || !n.Status().Fresh {
			t.Errorf("%s: %+v, %v", name, self, err)
		}
		f.must(n.Bootstrap())
		n.Close()
		f.restart(n).Close()
	}
}

func TestUnreadableIdentity(t *testing.T) {
	t.Parallel()
	f, n, _ := stopped(t, true)
	for name, content := range map[string]string{"empty": "", "garbage": "\x00\xff{", "cut": `{"Cluster": "te`} {
		cfg := copied(t, n)
		f.must(os.WriteFile(filepath.Join(cfg.Dir, identityFile), []byte(content), 0o600))
		if _, err := f.open(cfg, &journal{}); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), identityFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := copied(t, n)
	f.must(errors.Join(os.Remove(filepath.Join(cfg.Dir, identityFile)), os.Remove(filepath.Join(cfg.Dir, databaseFile))))
	if _, err := f.open(cfg, &journal{}); !errors.Is(err, ErrIdentity) {
		t.Errorf("snapshots of an unknown member: %v", err)
	}
}

// TestLoneMemberWithoutItsLog checks that the only member keeps its data, and that recovery
// continues from its snapshot.
func TestLoneMemberWithoutItsLog(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	defer f.close()
	f.grow(1)
	f.propose("one")
	n := f.leader()
	bare := copied(t, &node{cfg: n.cfg})
	f.must(os.Remove(filepath.Join(bare.Dir, databaseFile)))
	f.must(n.SnapshotNow(f.ctx()))
	f.propose("two")
	n.Close()
	f.must(os.Truncate(filepath.Join(n.cfg.Dir, databaseFile), 3<<12))
	openDamaged(f, n)
	openDamaged(f, n) // nothing was set aside
	if _, _, err := Recoverable(n.cfg); err == nil || !strings.Contains(err.Error(), "mv ") {
		t.Errorf("recoverable: %v", err)
	}
	f.must(os.Remove(filepath.Join(n.cfg.Dir, databaseFile)))
	report, err := Recover(n.cfg, &journal{}, nil)
	if err != nil || report.Snapshot == 0 {
		t.Fatalf("recovery %+v, %v", report, err)
	}
	f.restart(n)
	f.propose("three")
	if got := f.same(); len(got) != 2 || got[0] != "one" || got[1] != "three" {
		t.Errorf("state %q", got)
	}
	if _, err := Recover(bare, &journal{}, nil); err == nil || !strings.Contains(err.Error(), "gctld restore") {
		t.Errorf("recovered without log and snapshot: %v", err)
	}
}
