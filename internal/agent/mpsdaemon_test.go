package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/greylag/greylag/internal/cgroup"
	tasks "github.com/greylag/greylag/internal/runtime"
)

// otherUser and anotherUser are the users of two daemons.
const (
	otherUser   = 65534
	anotherUser = 1234
)

// newDaemons returns daemons whose control program is a script; "-d" runs start. It needs root.
func newDaemons(t *testing.T, start, quit string) (m *mpsDaemons, base string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	base, err := os.MkdirTemp("", "greylag-mps")
	if err == nil {
		err = os.Chmod(base, 0o755)
	}
	if err == nil {
		err = os.Mkdir(base+"/log", 0o777)
	}
	if err == nil {
		err = os.Chmod(base+"/log", 0o777)
	}
	program := filepath.Join(base, "control")
	script := fmt.Sprintf("#!/bin/sh\npid=$CUDA_MPS_PIPE_DIRECTORY/pid log=%s/log\nif [ \"$1\" = -d ]; then\n%s\nsleep 1000 >/dev/null 2>&1 &\necho $! >$pid\nexit\nfi\nread c\n[ -e $pid ] || exit 1\ncase $c in quit*) %s ;; esac\n", base, start, quit)
	if err == nil {
		err = os.WriteFile(program, []byte(script), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	m = &mpsDaemons{dir: filepath.Join(base, "mps"), program: program}
	t.Cleanup(func() {
		_ = syscall.Unmount(m.dirOf(0), syscall.MNT_DETACH) // after a failure
		_ = os.RemoveAll(base)
	})
	return m, base
}

const quits = `id -u >$log/quitter; id -G >>$log/quitter; kill $(cat $pid); rm $pid`

// clientOn returns a client on the GPU of an index.
func clientOn(index int32, uid uint32) *mpsClient {
	return &mpsClient{device: device{index: index, uuid: "GPU-" + number(index)}, jobs: 2, shared: 1 << 20, owner: tasks.Owner{UID: uid, GID: uid}}
}

// asUser runs a script in a directory as a user.
func asUser(uid uint32, dir, script string) error {
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd.Run()
}

// TestMPSDirsBelongToRoot: the user of a daemon owns its pipes and logs, but cannot replace them by links, through
// which a file of root would become the user's.
func TestMPSDirsBelongToRoot(t *testing.T) {
	m, _ := newDaemons(t, "", quits)
	if err := m.createDirs(clientOn(0, otherUser)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"": "drwx--x--x 0", "pipe": "drwx------ 65534", "log": "drwx------ 65534"} {
		info, err := os.Lstat(filepath.Join(m.dirOf(0), name))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(info.Mode(), " ", info.Sys().(*syscall.Stat_t).Uid); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	for _, script := range []string{"mv pipe x", "rmdir log", "ln -s /etc/shadow x", "echo >group"} {
		if asUser(otherUser, m.dirOf(0), script) == nil {
			t.Errorf("the user can do: %s", script)
		}
	}
}

// TestMPSQuitAsUser: the end of a daemon is ordered as its user, without groups of root, so that it cannot end the
// daemon of another user.
func TestMPSQuitAsUser(t *testing.T) {
	m, base := newDaemons(t, "", quits)
	for index, uid := range []uint32{otherUser, anotherUser} {
		if err := m.start(t.Context(), clientOn(int32(index), uid)); err != nil {
			t.Fatal(err)
		}
	}
	always := func() bool { return true }
	first, err := os.ReadFile(m.pipes(0) + "/pid")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = asUser(otherUser, "/", "kill "+string(first)) })
	if err := asUser(otherUser, m.pipes(0), "ln -sf "+m.pipes(1)+"/pid pid"); err != nil {
		t.Fatal(err)
	}
	if err := m.stop(t.Context(), 0, always); err != nil {
		t.Error(err)
	}
	if !exists(m.pipes(1) + "/pid") {
		t.Error("the daemon of another user was ended")
	}
	if err := m.stop(t.Context(), 1, always); err != nil || exists(m.dirOf(1)) {
		t.Errorf("the daemon remains: %v", err)
	}
	if got, _ := os.ReadFile(base + "/log/quitter"); string(got) != "1234\n1234\n" {
		t.Errorf("quit was sent by %q", got)
	}
}

// TestMPSLocks: a call that takes long on one GPU delays no other GPU, and its waiters stop with their context.
func TestMPSLocks(t *testing.T) {
	m, _ := newDaemons(t, "", quits)
	unlock, err := m.lock(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := m.start(t.Context(), clientOn(1, otherUser)); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.start(ended, clientOn(0, otherUser)); !errors.Is(err, context.Canceled) {
		t.Errorf("the lock was not waited for with the context: %v", err)
	}
	if err := m.stop(t.Context(), 1, func() bool { return true }); err != nil {
		t.Error(err)
	}
}

// TestMPSKillsDaemonThatStays: a daemon that ignores "quit" is killed with all of its control group, and what it and
// its clients left in their /dev/shm goes with it.
func TestMPSKillsDaemonThatStays(t *testing.T) {
	m, base := newDaemons(t, "echo x >/dev/shm/left && cat /proc/self/cgroup >$log/groups", "true")
	hierarchy, err := cgroup.Detect()
	parent := hierarchy.Group("/greylag-test-mps-" + strconv.Itoa(os.Getpid()))
	if err != nil || hasSystemd() || parent.Create(cgroup.Limits{}) != nil {
		t.Skip("needs control groups that can be written: ", err)
	}
	t.Cleanup(func() { _ = parent.Remove() })
	m.group, m.private = parent.Path(), true
	if err := m.start(t.Context(), clientOn(0, otherUser)); err != nil {
		t.Fatal(err)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(m.shm(0), &fs); err != nil || fs.Blocks*uint64(fs.Bsize) != 1<<20 || !exists(m.shm(0)+"/left") || exists("/dev/shm/left") {
		t.Errorf("shared memory of the daemon: %d blocks, %v", fs.Blocks, err)
	}
	if groups, _ := os.ReadFile(base + "/log/groups"); !strings.Contains(string(groups), parent.Path()+"/mps-gpu0-") {
		t.Errorf("the daemon is in the groups\n%s", groups)
	}
	pid, err := os.ReadFile(m.pipes(0) + "/pid")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.stop(t.Context(), 0, func() bool { return true }); err != nil || exists(m.dirOf(0)) {
		t.Errorf("the directory remains: %v", err)
	}
	if data, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/cmdline"); err == nil && strings.Contains(string(data), "sleep") {
		t.Error("the daemon is alive")
	}
	if left, err := parent.Children(); err != nil || len(left) > 0 {
		t.Errorf("groups remain: %v %v", left, err)
	}
}

// TestMPSOutputIsBounded: the control program cannot fill the memory of gnoded.
func TestMPSOutputIsBounded(t *testing.T) {
	var b mpsOutput
	for range 3 {
		if n, err := b.Write(make([]byte, maxMPSOutput/2+1)); err != nil || n != maxMPSOutput/2+1 {
			t.Fatal(n, err)
		}
	}
	if b.kept.Len() != maxMPSOutput {
		t.Errorf("%d bytes were kept", b.kept.Len())
	}
}
