package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/codec"
)

// TestEarlierVersions: entries, snapshots and backups of an earlier development version
// are refused as such, and not taken for damaged.
func TestEarlierVersions(t *testing.T) {
	entry := envelope{kind: kindMark, at: 1}.encode()
	entry[2] = 1
	end := len(entry) - 4
	binary.LittleEndian.PutUint32(entry[end:], crc32.Checksum(entry[:end], castagnoli))
	head := snapshotHead{Index: 1}.encode()
	head[4] = 1
	backup := append([]byte(backupMagic), 2, 0, 0, 0, 0, 0, 0, 0, 0)
	_, entryErr := decodeEnvelope(entry)
	_, headErr := decodeHead(head)
	_, backupErr := CheckBackup(bytes.NewReader(backup))
	for what, err := range map[string]error{"entry": entryErr, "snapshot": headErr, "backup": backupErr} {
		if !errors.Is(err, codec.ErrEarlier) || errors.Is(err, errEnvelope) || errors.Is(err, errSnapshot) || errors.Is(err, ErrBackup) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestEarlierLog: a data folder of an earlier development version is refused by the name of
// its folder, and its identity does not change.
func TestEarlierLog(t *testing.T) {
	t.Parallel()
	f := newFleet(t, steady)
	f.grow(1)
	f.propose("one")
	n := f.nodes[0]
	f.close()
	path := filepath.Join(n.cfg.Dir, identityFile)
	text, err := os.ReadFile(path)
	f.must(err)
	earlier := bytes.Replace(text, []byte("  \"Form\": 1,\n"), nil, 1)
	if bytes.Equal(earlier, text) {
		t.Fatalf("%s holds no form: %s", identityFile, text)
	}
	f.must(os.WriteFile(path, earlier, 0o600))
	for range 2 {
		_, err := f.open(n.cfg, &journal{})
		if !errors.Is(err, codec.ErrEarlier) || errors.Is(err, errRecord) || !strings.Contains(err.Error(), n.cfg.Dir) {
			t.Errorf("got %v", err)
		}
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, earlier) {
		t.Errorf("%s changed: %v", identityFile, err)
	}
}
