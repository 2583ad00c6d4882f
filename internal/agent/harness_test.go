package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/checkpoint"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/containerd"
	"github.com/greylag/greylag/internal/runtime/containerd/private"
	"github.com/greylag/greylag/internal/runtime/process"
	"github.com/greylag/greylag/internal/simgpu"
	"github.com/greylag/greylag/internal/staging"
)

// shared is used by all tests of this package: ginit, and containerd if available.
var shared struct {
	dir    string
	ginit  string
	daemon *private.Daemon
	skip   string // why there are no containers
}

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == checkpoint.ChildCommand {
		os.Exit(checkpoint.ChildMain(context.Background(), os.Stdin, os.Stdout))
	}
	if len(os.Args) == 2 && os.Args[1] == staging.ChildCommand {
		os.Exit(staging.ChildMain(context.Background(), os.Stdin, os.Stdout))
	}
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	syscall.Umask(0o022) // users other than the test's must be able to read files of the tests
	dir, err := private.Dir("ga-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	defer simgpu.Remove(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	shared.dir, shared.ginit = dir, filepath.Join(dir, "ginit")
	build := exec.Command("go", "build", "-o", shared.ginit, "../../cmd/ginit")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build ginit: %w: %s", err, out)
	}
	if os.Geteuid() != 0 {
		shared.skip = "needs root: containers"
		return m.Run(), nil
	}
	shared.daemon, err = private.Start(filepath.Join(dir, "d"), private.Options{Tmpfs: true})
	if err != nil {
		shared.skip = "needs containerd: " + err.Error()
		return m.Run(), nil
	}
	code := m.Run()
	if err := shared.daemon.Stop(); err != nil && !errors.Is(err, syscall.EBUSY) {
		return code, err
	}
	return code, nil // busy: another node of this machine still has a clone of the folder
}

// node is a daemon under test, with its runtime and its controller.
type node struct {
	*controller
	dir  string // of this node
	home string // where jobs of the test user may write
	gpus gpu.Provider
	cfg  Config
	open func() (tasks.Runtime, func() error, error)

	rt    tasks.Runtime // runtime of the running daemon; nil if none runs
	agent *Agent
	stop  func()
}

// newNode starts a node on the named runtime.
func newNode(t testing.TB, kind string, edit func(*node)) *node {
	t.Helper()
	if kind == "containerd" && shared.skip != "" {
		t.Skip(shared.skip)
	}
	dir, err := os.MkdirTemp(shared.dir, "n")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{controller: newController(t), dir: dir, home: filepath.Join(dir, "home"), gpus: gpu.None{}}
	if kind == "containerd" {
		n.uid, n.gid = 1000, 1000
	}
	if err := os.Mkdir(n.home, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, n.home: 0o700} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(n.home, int(n.uid), int(n.gid)); err != nil {
		t.Fatal(err)
	}
	n.cfg = Config{
		Name: "n1", Isolated: kind == "containerd", StateDir: filepath.Join(dir, "state"), CPUs: 2, Report: time.Second, Health: time.Second,
		HookTimeout: time.Minute, CheckpointProgram: "/proc/self/exe", Log: slog.New(slog.NewTextHandler(&testLog{t: t}, nil)),
	}
	n.open = opener(t, kind, dir)
	if edit != nil {
		edit(n)
	}
	n.start()
	t.Cleanup(n.cleanUp)
	return n
}

// start starts a daemon, which finds the state of an earlier one.
func (n *node) start() {
	n.t.Helper()
	rt, closeRuntime, err := n.open()
	if err != nil {
		n.t.Fatal(err)
	}
	agent, err := New(n.cfg, n.controller, rt, n.gpus)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	n.agent, n.rt = agent, rt
	n.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				n.t.Errorf("daemon: %v", err)
			}
		case <-time.After(patient):
			n.t.Error("the daemon does not end")
		}
		n.rt = nil
		if err := closeRuntime(); err != nil {
			n.t.Errorf("close runtime: %v", err)
		}
	})
}

// cleanUp ends the daemon and all tasks.
func (n *node) cleanUp() {
	n.stop()
	rt, closeRuntime, err := n.open()
	if err != nil {
		n.t.Fatal(err)
	}
	found, err := rt.List(context.Background())
	if err != nil {
		n.t.Error(err)
	}
	for _, f := range found {
		if err := rt.Remove(context.Background(), f.ID); err != nil {
			n.t.Error(err)
		}
	}
	if err := closeRuntime(); err != nil {
		n.t.Error(err)
	}
	if hierarchy, err := cgroup.Detect(); err == nil {
		if err := hierarchy.Group(containerd.GroupOf("agent", filepath.Base(n.dir))).Remove(); err != nil {
			n.t.Errorf("control group above those of its tasks: %v", err)
		}
	}
}

// opener returns a function that opens a runtime as a starting daemon does.
func opener(t testing.TB, kind, dir string) func() (tasks.Runtime, func() error, error) {
	t.Helper()
	if kind == "process" {
		return func() (tasks.Runtime, func() error, error) {
			rt, err := process.New(process.Config{StateDir: filepath.Join(dir, "run"), GInit: shared.ginit, AllowRoot: true})
			return rt, func() error { return nil }, err
		}
	}
	return containerdAt(shared.daemon.Address(), dir)
}

// containerdAt returns a function that opens the containerd at an address.
func containerdAt(address, dir string) func() (tasks.Runtime, func() error, error) {
	name := filepath.Base(dir)
	return func() (tasks.Runtime, func() error, error) {
		rt, err := containerd.New(containerd.Config{
			Address: address, Namespace: name, GInit: shared.ginit, CgroupParent: containerd.GroupOf("agent", name),
			StateDir: filepath.Join(dir, "run"), ScratchDir: filepath.Join(dir, "tmp"), DeviceSpecs: []string{filepath.Join(dir, "cdi")},
		})
		if err != nil {
			return nil, nil, err
		}
		return rt, rt.Close, nil
	}
}

// read returns the content of a job's file.
func (n *node) read(name string) string {
	data, err := os.ReadFile(filepath.Join(n.home, name))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// testLog writes the daemon's log into the test's log.
type testLog struct {
	t  testing.TB
	mu sync.Mutex
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if os.Getenv("AGENT_LOG") == "" {
		return io.Discard.Write(p)
	}
	return fmt.Fprintln(os.Stderr, l.t.Name(), strings.TrimSpace(string(p)))
}

func at(job, attempt int) reconcile.ID {
	return reconcile.ID{Job: clusterJob(job), Attempt: clusterAttempt(attempt)}
}

// alive reports whether the runtime runs a task.
func (n *node) alive(t testing.TB, id reconcile.ID) bool {
	t.Helper()
	rt := n.rt
	if rt == nil {
		opened, closeRuntime, err := n.open()
		if err != nil {
			t.Fatal(err)
		}
		defer closeRuntime()
		rt = opened
	}
	found, err := rt.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.ID == taskID(id) {
			return f.Running
		}
	}
	return false
}

// noRuntime fails to open a runtime the first time.
func noRuntime(open func() (tasks.Runtime, func() error, error)) func() (tasks.Runtime, func() error, error) {
	first := true
	return func() (tasks.Runtime, func() error, error) {
		if first {
			first = false
			return Unavailable{Reason: errors.New("containerd is not installed")}, func() error { return nil }, nil
		}
		return open()
	}
}
