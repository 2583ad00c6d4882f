package raftlog

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

func TestBackupRestoresIntoANewCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved bytes.Buffer
		f := newFleet(t, nil)
		f.grow(1)
		f.propose("one")
		f.propose("two")
		info, err := f.leader().Backup(f.ctx(), &saved)
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
		for i := 0; i < saved.Len(); i += 7 { // damage anywhere changes nothing in the cluster
			bad := slices.Clone(saved.Bytes())
			bad[i] ^= 2
			if _, err := f.leader().Restore(f.ctx(), bytes.NewReader(bad)); !errors.Is(err, ErrBackup) {
				t.Fatalf("byte %d damaged: %v", i, err)
			}
		}
		if _, err := f.followers()[0].Restore(f.ctx(), bytes.NewReader(saved.Bytes())); !errors.Is(err, ErrNotLeader) {
			t.Errorf("on a follower: %v", err)
		}
		if _, err := f.leader().Restore(f.ctx(), &saved); err != nil {
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

func FuzzBackup(f *testing.F) {
	f.Add([]byte("GLBK\x01\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		readBackupInfo(bytes.NewReader(b)) // must neither panic nor allocate without bound
	})
}
