//go:build linux

package containerd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/containerd/private"
	"github.com/greylag/greylag/internal/simgpu"
)

// world holds the containerd, ginit and shim shared by the tests of this package.
type world struct {
	skip   string // why no container can be created here
	dir    string
	ginit  string
	shim   string
	daemon *private.Daemon
}

var shared world // set once by TestMain, before any test

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	syscall.Umask(0o022) // users other than the test's must be able to read files of the tests
	if os.Geteuid() != 0 {
		shared.skip = "needs root: containers"
		return m.Run(), nil
	}
	dir, err := private.Dir("gl-")
	if err != nil {
		return 0, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	defer simgpu.Remove(dir)
	shared.dir, shared.ginit, shared.shim = dir, filepath.Join(dir, "ginit"), filepath.Join(dir, "gshim")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", "../../../cmd/ginit", "../../../cmd/gshim", "../../../cmd/gshimd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build ginit and shims: %w: %s", err, out)
	}
	shared.daemon, err = private.Start(filepath.Join(dir, "d"), private.Options{Tmpfs: os.Getenv("GREYLAG_TEST_DISK") == ""})
	if err != nil {
		shared.skip = "needs containerd: " + err.Error()
		return m.Run(), nil
	}
	code := m.Run()
	if systemdRuns() { // the slice above those that each test has stopped, and those between
		_ = exec.Command("systemctl", "stop", GroupOf(ofRun(), defaultNamespace)).Run()
	}
	return code, shared.daemon.Stop()
}

// needContainers skips a test that needs containers, with the reason.
func needContainers(t testing.TB) {
	t.Helper()
	if shared.skip != "" {
		t.Skip(shared.skip)
	}
}

// newRuntime creates a node for one test, and checks at the end that nothing of it remains.
func newRuntime(t testing.TB, change func(*Config)) *Runtime {
	t.Helper()
	needContainers(t)
	name := strings.NewReplacer("/", "-", "_", "-", "=", "-").Replace(strings.ToLower(t.Name()))
	dir := filepath.Join(shared.dir, name[:min(len(name), 40)])
	config := Config{
		Address: shared.daemon.Address(), Namespace: name, CgroupParent: testGroup(name),
		StateDir: filepath.Join(dir, "s"), ScratchDir: filepath.Join(dir, "tmp"), GInit: shared.ginit, Shim: shared.shim,
		DeviceSpecs: []string{filepath.Join(dir, "cdi")}, Hidden: []string{shared.daemon.StateDir()},
	}
	if change != nil {
		change(&config)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // after checkClean
	before := ourMounts(t)
	r, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkClean(t, r, before) })
	return r
}

// testGroup returns the parent of this run's groups: other runs may be active.
func testGroup(name string) string { return GroupOf(ofRun(), name) }

func ofRun() string { return fmt.Sprintf("rt%d", os.Getpid()) }

// removeParent removes the parent of the task groups, which must be empty.
func removeParent(r *Runtime) error {
	if *r.config.Systemd {
		return exec.Command("systemctl", "stop", r.config.CgroupParent).Run()
	}
	return r.groups.Group(r.parent()).Remove()
}

// checkClean removes what the test left running and checks that nothing remains.
func checkClean(t testing.TB, r *Runtime, mounts int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	found, err := r.List(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, task := range found {
		if err := r.Remove(ctx, task.ID); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{filepath.Join(r.config.StateDir, "jobs"), r.config.ScratchDir} {
		if left := must(os.ReadDir(dir))(t); len(left) != 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
	if pids := must(r.groups.Group(r.parent()).Processes())(t); len(pids) != 0 {
		t.Errorf("processes left: %v", pids)
	}
	for _, task := range found {
		if r.group(task.ID).Exists() {
			t.Errorf("control group of %s is left", task.ID)
		}
	}
	if err := removeParent(r); err != nil {
		t.Errorf("control groups below the node's: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if after := ourMounts(t); after != mounts {
		t.Errorf("%d mounts, there were %d", after, mounts)
	}
}

// ourMounts counts the mounts below the directory of these tests; other programs mount elsewhere
// meanwhile.
func ourMounts(t testing.TB) int {
	t.Helper()
	n := 0
	for _, m := range must(mountTable())(t) {
		if strings.HasPrefix(m.point, shared.dir+"/") {
			n++
		}
	}
	return n
}

// must returns a value and ends the test on an error.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// job returns a Spec for uid 1000 that runs a shell script, with its output in a directory of the
// test.
func job(t testing.TB, id uint64, script string) runtime.Spec {
	t.Helper()
	home := home(t)
	return runtime.Spec{
		ID: runtime.TaskID{Job: id, Attempt: 1}, Owner: runtime.Owner{UID: 1000, GID: 1000, Groups: []uint32{1000, 44}},
		Script: []byte("#!/bin/sh\n" + script), Env: []string{"PATH=/usr/bin:/bin", "HOME=" + home, "GREETING=hello world"},
		WorkDir: home, Stdout: filepath.Join(home, fmt.Sprintf("out-%d", id)), PrivateTmp: true,
		Labels: map[string]string{"greylag/test": t.Name()},
	}
}

// home returns a directory of uid 1000 outside /tmp, which tasks do not see.
func home(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(shared.dir, "home-"+strings.ReplaceAll(t.Name(), "/", "-"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the rest is removed with the run's directory
	return dir
}

// run starts a task, waits for its end and returns it with the output.
func run(t testing.TB, r *Runtime, spec runtime.Spec) (runtime.Exit, string) {
	t.Helper()
	ctx := limit(t)
	if err := r.Start(ctx, spec); err != nil {
		t.Fatal(err)
	}
	exit := must(r.Wait(ctx, spec.ID))(t)
	if exit.LaunchError != "" {
		return exit, ""
	}
	return exit, string(must(os.ReadFile(spec.Stdout))(t))
}

// limit returns a context with the deadline of a test.
func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !condition(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
