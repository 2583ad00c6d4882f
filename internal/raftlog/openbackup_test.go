package raftlog

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
)

// TestOpenBackup checks that a state machine's data can be read from a backup without a cluster,
// and that damage anywhere or a missing end is reported.
func TestOpenBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved bytes.Buffer
		f := newFleet(t, nil)
		defer f.close()
		f.grow(1)
		f.propose("one")
		f.propose("two")
		made, err := f.leader().Backup(f.ctx(), &saved, Contents{})
		f.must(err)
		info, in, err := OpenBackup(bytes.NewReader(saved.Bytes()))
		f.must(err)
		whole, err := io.ReadAll(in)
		if err != nil || info.Index != made.Index || !bytes.Contains(whole, []byte("one")) || !bytes.Contains(whole, []byte("two")) {
			t.Errorf("%+v, %q, %v", info, whole, err)
		}
		for i := range saved.Len() - 8 { // the contents, empty here, are not opened
			bad := slices.Clone(saved.Bytes())
			bad[i] ^= 4
			for what, data := range map[string][]byte{"damaged": bad, "cut off": saved.Bytes()[:i]} {
				_, in, err := OpenBackup(bytes.NewReader(data))
				if err == nil {
					_, err = io.ReadAll(in)
				}
				if !errors.Is(err, ErrBackup) && !errors.Is(err, ErrBackupVersion) {
					t.Fatalf("%s at byte %d: %v", what, i, err)
				}
			}
		}
	})
}
