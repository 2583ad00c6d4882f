package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	ReapIfAsked()
	os.Exit(m.Run())
}

// shortDir returns a cluster's folder, removed by the test.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := Options{}.makeDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := clean(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// impostor runs a shell under the name of one of our programs, with a child.
func impostor(t *testing.T, name, argument string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & wait", argument)
	cmd.Args[0] = name
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return cmd
}

// TestCleanEndsItsOwn ends the programs of one folder with their children, and no others.
func TestCleanEndsItsOwn(t *testing.T) {
	dir, other := shortDir(t), shortDir(t)
	mine := impostor(t, "gnoded", filepath.Join(dir, "n1/gnoded.toml"))
	theirs := impostor(t, "gnoded", filepath.Join(other, "n1/gnoded.toml"))
	shell := impostor(t, "vi", filepath.Join(dir, "work/job.sh"))
	deadline := time.Now().Add(time.Minute)
	for len(processesOf(dir)) < 2 || len(processesOf(other)) < 2 {
		if time.Now().After(deadline) {
			t.Fatal("the programs with their children are not found")
		}
		time.Sleep(time.Millisecond)
	}
	if err := clean(dir); err != nil {
		t.Fatal(err)
	}
	if state, _ := statOf(mine.Process.Pid); state != 'Z' && state != 0 {
		t.Errorf("the cluster's program is in state %c", state)
	}
	for name, cmd := range map[string]*exec.Cmd{"another cluster's program": theirs, "an editor": shell} {
		if state, _ := statOf(cmd.Process.Pid); state == 'Z' || state == 0 {
			t.Errorf("%s was ended", name)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// TestReaper checks that it cleans up when the starter releases it.
func TestReaper(t *testing.T) {
	dir := shortDir(t)
	program := impostor(t, "gctld", filepath.Join(dir, "c1/gctld.toml"))
	reaper, err := startReaper(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := reaper.dismiss(); err != nil {
		t.Fatal(err)
	}
	if state, _ := statOf(program.Process.Pid); state != 'Z' && state != 0 {
		t.Errorf("the program is in state %c", state)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// TestKeeper restarts a program as long as it asks for that, and no longer.
func TestKeeper(t *testing.T) {
	for script, want := range map[string]struct {
		status int
		starts string
	}{
		"echo x >> runs; [ $(wc -l < runs) -gt 1 ] || exit 75; exit 3": {3, "x\nx\n"},
		"echo x >> runs; exit 1":     {1, "x\n"},
		"echo x >> runs; kill -9 $$": {1, "x\n"},
	} {
		argv, err := kept("/bin/sh", "-c", script)
		if err != nil {
			t.Fatal(err)
		}
		keeper := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		keeper.Dir, keeper.Env = t.TempDir(), append(os.Environ(), keepVariable+"=1")
		_ = keeper.Run() // by its exit status
		starts, err := os.ReadFile(filepath.Join(keeper.Dir, "runs"))
		if status := keeper.ProcessState.ExitCode(); err != nil || status != want.status || string(starts) != want.starts {
			t.Errorf("%s: status %d after starts %q (%v), want %d after %q", script, status, starts, err, want.status, want.starts)
		}
	}
}

// TestDisk freezes and fills a file system of its own.
func TestDisk(t *testing.T) {
	if err := needs("disks", "mkfs.ext4", "mount", "fsfreeze"); err != nil {
		t.Skip("needs root: ", err)
	}
	dir := shortDir(t)
	ctl := &Controller{Data: filepath.Join(dir, "c1", "data")}
	if err := errors.Join(os.MkdirAll(ctl.Data, 0o700), makeDisk(filepath.Join(dir, "disk.img"), ctl.Data, 64)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(ctl.Data, "file")
	if err := ctl.Fill(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, make([]byte, 64<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing to the full disk: %v", err)
	}
	if err := errors.Join(ctl.Drain(), os.WriteFile(file, make([]byte, 64<<10), 0o600), ctl.Freeze()); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(file, []byte("x"), 0o600) }()
	select {
	case err := <-wrote:
		t.Errorf("writing to the frozen disk returned %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := errors.Join(ctl.Thaw(), <-wrote); err != nil {
		t.Error(err)
	}
	if err := ctl.Freeze(); err != nil { // left so for clean
		t.Error(err)
	}
}

// TestNetwork cuts namespaces off from each other and heals them.
func TestNetwork(t *testing.T) {
	if err := needs("network namespaces", "ip", "iptables", "nsenter", "busybox"); err != nil {
		t.Skip("needs root: ", err)
	}
	dir := shortDir(t)
	n, err := newNetwork(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Dir: dir, network: n, controllers: make([]*Controller, 3)}
	reaches := func(from, to int) bool {
		argv := append(n.enter(from), "busybox", "ping", "-c1", "-W1", n.address(to))
		return exec.Command(argv[0], argv[1:]...).Run() == nil
	}
	for name, step := range map[string]struct {
		cut     func() error
		reaches [3]bool // 0 and 1, 0 and 2, 1 and 2
	}{
		"nothing cut": {func() error { return nil }, [3]bool{true, true, true}},
		"one way":     {func() error { return c.Cut(0, 1) }, [3]bool{false, true, true}},
		"two groups":  {func() error { return c.Split([]int{0}, []int{1, 2}) }, [3]bool{false, false, true}},
		"all alone":   {func() error { return c.Split() }, [3]bool{false, false, false}},
		"isolated":    {func() error { return c.Isolate(2) }, [3]bool{true, false, false}},
	} {
		if err := step.cut(); err != nil {
			t.Fatal(err)
		}
		if got := [3]bool{reaches(0, 1), reaches(0, 2), reaches(1, 2)}; got != step.reaches {
			t.Errorf("%s: %v, want %v", name, got, step.reaches)
		}
		if err := c.Heal(); err != nil {
			t.Fatal(err)
		}
	}
}
