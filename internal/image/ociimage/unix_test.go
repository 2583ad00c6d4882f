package ociimage

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestUnix checks that both kinds have a working shell without the files of the machine.
func TestUnix(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: chroot")
	}
	for name, programs := range map[string]func() ([]File, error){"busybox": busybox, "the machine's own": ownPrograms} {
		files, err := programs()
		if err != nil {
			t.Fatal(err)
		}
		if files == nil {
			t.Log("no ", name)
			continue
		}
		root := t.TempDir()
		for _, file := range append(files, File{Path: "etc/word", Mode: 0o644, Data: []byte("word\n")}) {
			path := filepath.Join(root, file.Path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			switch {
			case file.Link != "":
				err = os.Symlink(file.Link, path)
			default:
				err = os.WriteFile(path, file.Data, os.FileMode(file.Mode))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		shell := exec.Command("/bin/sh", "-c", "cat /etc/word; ls / | head -n 1; id -u")
		shell.Dir, shell.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
		if out, err := shell.CombinedOutput(); err != nil || string(out) != "word\nbin\n0\n" {
			t.Errorf("%s: %q %v", name, out, err)
		}
	}
}
