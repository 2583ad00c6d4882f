package raftlog

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackupRestoresIntoANewCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved bytes.Buffer
		f := newFleet(t, nil)
		f.grow(1)
		f.propose("one")
		f.propose("two")
		info, err := f.leader().Backup(f.ctx(), &saved, Contents{})
		if err != nil || info.ClusterID != "test" || info.Index == 0 {
			t.Fatalf("backup %+v, %v", info, err)
		}
		f.close()

		f = newFleet(t, func(c *Config) { c.ClusterID = "new" })
		defer f.close()
		f.grow(3)
		for _, c := range []string{"x", "y", "z", "gone after the restore"} {
			f.propose(c)
		}
		f.same()
		for i := 0; i < saved.Len()-8; i += 7 { // damage anywhere in the state changes nothing in the cluster
			bad := slices.Clone(saved.Bytes())
			bad[i] ^= 2
			if _, err := f.leader().Restore(f.ctx(), bytes.NewReader(bad), nil); !errors.Is(err, ErrBackup) && !errors.Is(err, ErrBackupVersion) {
				t.Fatalf("byte %d damaged: %v", i, err)
			}
		}
		if _, err := f.followers()[0].Restore(f.ctx(), bytes.NewReader(saved.Bytes()), nil); !errors.Is(err, ErrNotLeader) {
			t.Errorf("on a follower: %v", err)
		}
		if _, err := f.leader().Restore(f.ctx(), &saved, nil); err != nil {
			t.Fatal(err)
		}
		index, err := f.leader().ReadIndex(f.ctx())
		f.must(err)
		f.propose("three")
		for _, n := range f.nodes {
			f.must(n.WaitApplied(f.ctx(), index))
		}
		if got := f.same(); !slices.Equal(got, []string{"one", "two", "three"}) {
			t.Errorf("state %q", got)
		}
	})
}

// TestBackupContents checks that contents of any size are restored whole, and that damage anywhere,
// another format or trailing bytes are found before anything changes.
func TestBackupContents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(1)
		f.propose("one")
		text := bytes.Repeat([]byte("content "), 100_000)
		write := func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		}
		var saved bytes.Buffer
		_, err := f.leader().Backup(f.ctx(), &saved, Contents{History: true, Write: write})
		f.must(err)
		if info, err := CheckBackup(bytes.NewReader(saved.Bytes())); err != nil || !info.History {
			t.Fatalf("%+v, %v", info, err)
		}
		for i := 0; i < saved.Len(); i += saved.Len()/61 + 1 {
			bad := slices.Clone(saved.Bytes())
			bad[i] ^= 2
			for _, data := range [][]byte{bad, bad[:i]} {
				if _, err := CheckBackup(bytes.NewReader(data)); !errors.Is(err, ErrBackup) && !errors.Is(err, ErrBackupVersion) {
					t.Fatalf("byte %d damaged: %v", i, err)
				}
			}
		}
		newer := slices.Clone(saved.Bytes())
		newer[4]++
		if _, err := CheckBackup(bytes.NewReader(newer)); !errors.Is(err, ErrBackupVersion) || !strings.Contains(err.Error(), "update it first") {
			t.Errorf("a newer format: %v", err)
		}
		if _, err := CheckBackup(bytes.NewReader(append(saved.Bytes(), 0))); !errors.Is(err, ErrBackup) {
			t.Errorf("one byte too many: %v", err)
		}
		var got []byte
		_, err = f.leader().Restore(f.ctx(), bytes.NewReader(saved.Bytes()), func(r io.Reader) (err error) {
			got, err = io.ReadAll(r)
			return err
		})
		if err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d bytes of contents, %v", len(got), err)
		}
	})
}

// TestRestoreReusesNoIndex checks that a restore continues above every index of the lost time,
// also when the same backup is restored twice, and that the log can be truncated and recovered.
func TestRestoreReusesNoIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(1)
		f.propose("one")
		var saved bytes.Buffer
		_, err := f.leader().Backup(f.ctx(), &saved, Contents{})
		f.must(err)
		for range 2 {
			f.propose("lost")
			lost := f.leader().Status().LastIndex
			_, err := f.leader().Restore(f.ctx(), bytes.NewReader(saved.Bytes()), nil)
			f.must(err)
			time.Sleep(time.Second)
			f.must(f.leader().SnapshotNow(f.ctx()))
			if now := f.leader().Status().LastIndex; now <= lost+1000 {
				t.Errorf("goes on at %d after %d", now, lost)
			}
		}
		joined := f.start(f.config("b")) // gets the snapshot
		f.add(joined.self.ID, joined.cfg.Addr)
		f.propose("two")
		index, err := f.leader().ReadIndex(f.ctx())
		f.must(err)
		for _, n := range f.nodes {
			f.must(n.WaitApplied(f.ctx(), index))
		}
		if got := f.same(); !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("state %q", got)
		}
	})
}

func FuzzBackup(f *testing.F) {
	f.Add([]byte("GLBK\x02\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		readBackupInfo(bytes.NewReader(b)) // must neither panic nor allocate without bound
	})
}
