package staging

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// newRsync starts a daemon with a module that can be written, and returns its URL and directory.
func newRsync(t *testing.T) (url, dir string) {
	t.Helper()
	program, err := findRsync()
	if err != nil {
		t.Skip("needs the program rsync")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().(*net.TCPAddr)
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	config := filepath.Join(t.TempDir(), "rsyncd.conf")
	user := ""
	if os.Geteuid() == 0 {
		user = "uid = root\ngid = root\n"
	}
	text := fmt.Sprintf("use chroot = no\nlog file = /dev/null\n%s[lab]\npath = %s\nread only = no\n[closed]\npath = %s\nauth users = reader\nsecrets file = /dev/null\n", user, dir, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--daemon", "--no-detach", "--address=127.0.0.1", fmt.Sprint("--port=", address.Port), "--config="+config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for range 100 {
		c, err := net.DialTimeout("tcp", address.String(), time.Second)
		if err == nil {
			_ = c.Close()
			return fmt.Sprintf("rsync://127.0.0.1:%d/", address.Port), dir
		}
		time.Sleep(50 * time.Millisecond) // until it listens
	}
	t.Fatal("the daemon does not listen")
	return "", ""
}

// TestRsync copies files and directories from and to a daemon. No link is copied as a link, or leads out.
func TestRsync(t *testing.T) {
	url, store := newRsync(t)
	dir, outside := t.TempDir(), t.TempDir()
	write(t, store, "set/a", "1")
	write(t, store, "set/deep/b c", "2")
	write(t, store, "one", "3")
	if err := os.Symlink("a", filepath.Join(store, "set/link")); err != nil {
		t.Fatal(err)
	}
	for path, from := range map[string]string{"data": "lab/set/", "x/-one": "lab/one"} {
		if text, _ := copied(t, true, dir, path, url+from); text != "" {
			t.Errorf("%s: %s", from, text)
		}
	}
	want := map[string]string{"data/a": "1", "data/deep/b c": "2", "data/link": "1", "x/-one": "3"}
	same(t, content(t, dir), want)
	for path, to := range map[string]string{".": "lab/all/", "x/-one": "lab/copy"} {
		if text, _ := copied(t, false, dir, path, url+to); text != "" {
			t.Errorf("%s: %s", to, text)
		}
	}
	same(t, content(t, filepath.Join(store, "all")), want)
	write(t, outside, "secret", "secret")
	for name, target := range map[string]string{"data/out": outside, "file": filepath.Join(outside, "secret")} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for path, to := range map[string]string{"data": "lab/bad/", "file": "lab/bad", "data/out": "lab/bad/"} {
		if text, kind := copied(t, false, dir, path, url+to); text == "" || kind != Permanent {
			t.Errorf("%s: %q %d", path, text, kind)
		}
	}
	if _, err := os.Stat(filepath.Join(store, "bad")); err == nil {
		t.Error("a link was followed")
	}
}

// TestRsyncFailures checks the texts and kinds of failures.
func TestRsyncFailures(t *testing.T) {
	url, _ := newRsync(t)
	dir := t.TempDir()
	for from, want := range map[string]string{"lab/none": "No such file", "none/x": "Unknown module", "closed/x": "status 5"} {
		if text, kind := copied(t, true, dir, "x", url+from); !strings.Contains(text, want) || kind != Permanent {
			t.Errorf("%s: %q %d, want %q", from, text, kind, want)
		}
	}
	if text, kind := copied(t, true, dir, "x", "rsync://169.254.169.254/m/x"); kind != Permanent || !strings.Contains(text, "169.254.169.254") {
		t.Errorf("%q %d", text, kind)
	}
	if text, kind := copied(t, true, dir, "x", "rsync://127.0.0.1:1/m/x"); kind != Temporary {
		t.Errorf("%q %d", text, kind)
	}
	same(t, content(t, dir), nil)
}
