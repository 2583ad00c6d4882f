package leased

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLeaseFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease.json")
	if _, err := ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	f := File{Cluster: "c1", Lease: 7, Launch: 6, Instance: "i-1", Expires: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)}
	text, err := f.Text()
	if err != nil {
		t.Fatal(err)
	}
	for content, good := range map[string]bool{
		text: true, "": false, "{}": false, text + text: false, `{"lease": 7}`: false, `{"cluster": "c1", "lease": "7"}`: false,
		`{"cluster":"c1","lease":7,"instance":"i-1","expires":"2026-11-27T12:00:00Z","more":1}`: false,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(path)
		if good && (err != nil || got != f) || !good && !errors.Is(err, ErrBadFile) {
			t.Errorf("%q: %+v, %v", content, got, err)
		}
	}
}
