package setup

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
)

// TestCheckWritable checks that a missing directory may be created, and that nothing is.
func TestCheckWritable(t *testing.T) {
	dir := t.TempDir()
	if err := checkWritable(dir, filepath.Join(dir, "a", "b")); err != nil {
		t.Error(err)
	}
	if exists(filepath.Join(dir, "a")) {
		t.Error("the check created a directory")
	}
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // root can write everywhere: this thread becomes another user
		const unprivileged = 65534
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		setUser := func(uid uintptr) {
			if _, _, code := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, 0); code != 0 {
				t.Fatal(code)
			}
		}
		setUser(unprivileged)
		defer setUser(0)
	}
	err := checkWritable(filepath.Join(dir, "a", "b"))
	if err == nil || !strings.Contains(err.Error(), "cannot write to "+dir+": permission denied") || hint.Of(err) != "run this command as root" {
		t.Errorf("%v, hint %s", err, hint.Of(err))
	}
}

// TestJoinNeedsItsDaemon checks that the error names the package and the tokens for other roles.
func TestJoinNeedsItsDaemon(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, c := range []struct {
		role                   pki.Role
		program, error, advice string
	}{
		{pki.RoleNode, "gnoded", "the token is for a node, but gnoded is not installed on this host", "install the package greylag-node; a login node needs a token of gctl cluster token --auth"},
		{pki.RoleAuth, "gauthd", "the token is for a login node, but gauthd is", "install the package greylag-client; a compute node needs a token of gctl cluster token --node"},
		{pki.RoleController, "gctld", "the token is for a controller, but gctld is", "install the package greylag-controller; "},
	} {
		err := joining{token: pki.JoinToken{Role: c.role}}.checkInstalled(c.program)
		if err == nil || !strings.HasPrefix(err.Error(), c.error) || !strings.HasPrefix(hint.Of(err), c.advice) {
			t.Errorf("%s: %v, hint %s", c.role, err, hint.Of(err))
		}
	}
}
