package config

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestFilesForEverybody: users read what an administrator with a strict umask wrote.
func TestFilesForEverybody(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	path := filepath.Join(t.TempDir(), "etc", "client.toml")
	if err := WriteFile(path, "x = 1\n"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{path: 0o644, filepath.Dir(path): os.ModeDir | 0o755} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}
