//go:build linux

package shim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// TestParseCall parses the command lines of containerd 1.6 to 2.4, and invalid ones.
func TestParseCall(t *testing.T) {
	for line, want := range map[string]Call{
		"-namespace greylag -address /run/c.sock -publish-binary /usr/bin/containerd -id j1-a1 start": {
			Action: "start", Namespace: "greylag", ID: "j1-a1", Address: "/run/c.sock"},
		"-namespace greylag -address /run/c.sock -publish-binary containerd -id j1-a1 -bundle /b -debug delete": {
			Action: "delete", Namespace: "greylag", ID: "j1-a1", Address: "/run/c.sock"},
		"-later 3 -namespace -id -id -address serve": {Action: "serve", Namespace: "-id", ID: "-address"},
	} {
		if got, err := ParseCall(strings.Fields(line)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	for _, line := range []string{"", "start", "-namespace n start", "-namespace n -id", "-v", "-namespace n -id ../x start"} {
		if got, err := ParseCall(strings.Fields(line)); !errors.Is(err, ErrUsage) {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
}

// TestSocket checks that the sockets of two tasks differ and fit the kernel's limit.
func TestSocket(t *testing.T) {
	seen := map[string]Call{}
	for _, call := range []Call{
		{Namespace: "n", ID: "j1-a1", Address: "/a"}, {Namespace: "n", ID: "j1-a1", Address: "/b"},
		{Namespace: "m", ID: "j1-a1", Address: "/a"}, {Namespace: "n", ID: "j1-a2", Address: "/a"},
		{Namespace: strings.Repeat("n", 76), ID: "j18446744073709551615-a4294967295", Address: strings.Repeat("/a", 50)},
	} {
		path := call.Socket()
		if other, ok := seen[path]; ok || len(path) > 107 {
			t.Errorf("%+v has %s, as has %+v", call, path, other)
		}
		seen[path] = call
	}
}

// TestDeleteResponse decodes the hand-encoded message with containerd's type.
func TestDeleteResponse(t *testing.T) {
	at := time.Unix(1<<33+5, 0)
	var answer task.DeleteResponse
	if err := proto.Unmarshal(deleteResponse(137, at), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.ExitStatus != 137 || !answer.ExitedAt.AsTime().Equal(at) || answer.Pid != 0 {
		t.Errorf("%v", &answer)
	}
}

// TestDelete checks that what a killed daemon left is removed with the task's OCI runtime, once,
// that nothing is called if the daemon did so, and that a failure is reported and its data kept.
func TestDelete(t *testing.T) {
	if os.Geteuid() != 0 { // on a real node only root may read it
		t.Skip("needs root: " + SocketDir)
	}
	call := Call{Action: "delete", Namespace: t.Name(), ID: "j1-a1"}
	bundle := t.TempDir()
	if _, err := call.Delete(bundle); err != nil {
		t.Errorf("a bundle with nothing: %v", err)
	}
	program := filepath.Join(bundle, "oci.sh")
	write(t, program, "#!/bin/sh\necho \"$*\" >> "+bundle+"/calls\ntest -e "+bundle+"/works || { echo no >&2; exit 3; }\n")
	oci := OCI{Program: program, Root: "/r", Systemd: true}
	if err := oci.Write(bundle); err != nil {
		t.Fatal(err)
	}
	if got, known, err := ReadOCI(bundle); err != nil || !known || got != oci {
		t.Fatalf("%+v %v %v", got, known, err)
	}
	if _, err := call.Delete(bundle); !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "exit status 3: no") {
		t.Errorf("an OCI runtime that fails: %v", err)
	}
	write(t, filepath.Join(bundle, "works"), "")
	for range 2 {
		if _, err := call.Delete(bundle); err != nil {
			t.Error(err)
		}
	}
	calls, err := os.ReadFile(filepath.Join(bundle, "calls"))
	want := strings.Repeat("--root /r --log "+bundle+"/log.json --log-format json --systemd-cgroup delete --force j1-a1\n", 2)
	if err != nil || string(calls) != want {
		t.Errorf("%v: %s, want %s", err, calls, want)
	}
	write(t, filepath.Join(bundle, "oci"), "half")
	if _, err := call.Delete(bundle); !errors.Is(err, ErrLeft) {
		t.Errorf("a file that is cut off: %v", err)
	}
}

// TestStartWithoutDaemon expects an error and no socket.
func TestStartWithoutDaemon(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: " + SocketDir)
	}
	call := Call{Action: "start", Namespace: t.Name(), ID: "j1-a1"}
	if _, err := call.Start("/nonexistent/gshimd", t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(call.Socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket: %v", err)
	}
}

// TestSweep checks that only sockets without a listener for a while are removed, and none while a
// socket is being created.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	made := func(name string, age time.Duration) *os.File {
		path := filepath.Join(dir, name)
		file, err := relisten(path)
		if err == nil {
			err = os.Chtimes(path, time.Time{}, time.Now().Add(-age))
		}
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, name := range []string{"left", "new"} {
		age := map[string]time.Duration{"left": 2 * settled}[name]
		if err := made(name, age).Close(); err != nil {
			t.Fatal(err)
		}
	}
	defer made("busy", 2*settled).Close()
	write(t, filepath.Join(dir, "file"), "")
	if err := os.Chtimes(filepath.Join(dir, "file"), time.Time{}, time.Now().Add(-2*settled)); err != nil {
		t.Fatal(err)
	}
	swept := func(want string) {
		t.Helper()
		err := sweep(dir)
		entries, unread := os.ReadDir(dir)
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		if got := strings.Join(names, " "); errors.Join(err, unread) != nil || got != want {
			t.Errorf("%s, %v, want %s", got, errors.Join(err, unread), want)
		}
	}
	lock, err := lockSockets(dir, unix.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	swept("busy file left new")
	if err := unix.Close(lock); err != nil {
		t.Fatal(err)
	}
	swept("busy file new")
	if err := sweep(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
