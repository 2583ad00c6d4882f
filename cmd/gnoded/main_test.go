package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/runtime/containerd/private"
	"github.com/greylag/greylag/internal/simgpu"
	"github.com/greylag/greylag/internal/wire"
)

// leader is a controller whose desired tasks the test sets.
type leader struct {
	greylagv1connect.UnimplementedNodeServiceHandler
	mu       sync.Mutex
	changed  chan struct{}
	version  uint64
	tasks    []*greylagv1.WantedTask
	script   []byte
	register *greylagv1.RegisterNodeRequest
	report   *greylagv1.ReportTasksRequest
}

func (l *leader) change(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version++
	fn()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *leader) RegisterNode(_ context.Context, r *greylagv1.RegisterNodeRequest) (*greylagv1.RegisterNodeResponse, error) {
	l.change(func() { l.register = r })
	return &greylagv1.RegisterNodeResponse{Epoch: 1, Cluster: "c1"}, nil
}

func (l *leader) WatchTasks(ctx context.Context, _ *greylagv1.WatchTasksRequest, stream *connect.ServerStream[greylagv1.WatchTasksResponse]) error {
	for {
		l.mu.Lock()
		message, changed := &greylagv1.WatchTasksResponse{Version: l.version, Tasks: l.tasks}, l.changed
		l.mu.Unlock()
		if err := stream.Send(message); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *leader) ReportTasks(_ context.Context, r *greylagv1.ReportTasksRequest) (*greylagv1.ReportTasksResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report = r
	return &greylagv1.ReportTasksResponse{Index: l.version}, nil
}

func (l *leader) GetContent(context.Context, *greylagv1.GetContentRequest) (*greylagv1.GetContentResponse, error) {
	return &greylagv1.GetContentResponse{Content: l.script}, nil
}

// until waits for a condition on the last messages.
func (l *leader) until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		ok := condition()
		report := l.report
		l.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never: %s; last report: %v", what, report)
		}
	}
}

func (l *leader) phase() string {
	if l.report == nil || len(l.report.GetTasks()) != 1 {
		return ""
	}
	return wire.Word(l.report.GetTasks()[0].GetPhase())
}

// cluster creates a CA, a listening controller, and the configuration of a node.
func cluster(t *testing.T, dir, node, extra string) (*leader, string) {
	t.Helper()
	ca, err := pki.NewCA("c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]pki.Role{"ctl": pki.RoleController, "n1": pki.RoleNode} {
		grant := pki.Grant{Peer: pki.Peer{ClusterID: "c1", Role: role, Name: name}, Hosts: nil}
		if role == pki.RoleController {
			grant.Hosts = []string{"127.0.0.1"}
		} else {
			grant.Peer.Name = node
		}
		if err := ca.Issue(filepath.Join(dir, name), grant, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	id, trust, err := pki.OpenIdentity(filepath.Join(dir, "ctl"))
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{changed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(greylagv1connect.NewNodeServiceHandler(l))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, TLSConfig: pki.ServerTLS(trust, id)}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	text := fmt.Sprintf("controllers = [%q]\ndata_dir = %q\nstate_dir = %q\npki_dir = %q\ncdi_dir = %q\ncpus = 2\n%s\n",
		listener.Addr(), dir+"/lib/data", dir+"/run/state", dir+"/n1", dir+"/cdi", extra)
	path := filepath.Join(dir, "gnoded.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return l, path
}

// build builds the programs of a node into a folder.
func build(t *testing.T, dir string, others ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"build", "-o", dir + "/", "../gnoded"}, others...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
}

// begin starts gnoded; its log is shown if the test fails.
func begin(t *testing.T, dir, config string) *exec.Cmd {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(dir, "gnoded"), "--config", config)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // by the test, if that ended it
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("gnoded:\n%s", text)
		}
	})
	return cmd
}

// host creates what a node needs: a folder, the programs, a containerd, a leader.
func host(t *testing.T) (dir, home, config string, l *leader) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: containers")
	}
	dir, err := private.Dir("gn-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = simgpu.Remove(dir), os.RemoveAll(dir) })
	home = filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, home: 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	build(t, dir, "../ginit", "../gstepd", "../gshim", "../gshimd")
	d, err := private.Start(filepath.Join(dir, "d"), private.Options{Tmpfs: true})
	if err != nil {
		t.Skip("needs containerd: " + err.Error())
	}
	t.Cleanup(func() {
		// Busy: another node of this machine still has its clone of the folder.
		if err := d.Stop(); err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Error(err)
		}
	})
	l, config = cluster(t, dir, "n1", fmt.Sprintf("[containerd]\nsocket = %q\n[[simulated_gpus]]\ncount = 2\ntype = \"h100\"\nmemory = \"80GiB\"\n", d.Address()))
	return dir, home, config, l
}

// TestKilledWithATaskRunning checks that SIGKILL loses neither the task nor its exit status.
func TestKilledWithATaskRunning(t *testing.T) {
	dir, home, config, l := host(t)
	first := begin(t, dir, config)
	l.until(t, "registered", func() bool { return l.register != nil })
	if r := l.register; r.GetFault() != "" || len(r.GetGpus()) != 2 || r.GetGpus()[1].GetType() != "h100" || r.GetCpus() != 2 {
		t.Fatalf("registered as %v", r)
	}
	script := "#!/bin/sh\necho start >> starts\nls /dev/nvidia*\nuntil [ -e go ]; do sleep 0.02; done\nexit 7\n"
	digest := sha256.Sum256([]byte(script))
	l.change(func() {
		l.script = []byte(script)
		l.tasks = []*greylagv1.WantedTask{{
			Job: 1, Attempt: 1, Ref: "1", User: "tester", Uid: 1000, Gid: 1000, Name: "test", Script: digest[:], WorkDir: home,
			Output: "out-%j", KillWait: durationpb.New(time.Minute), Nodes: []*greylagv1.NodeAllocation{{Node: "n1", Cpus: 1, Gpus: []int32{1}}},
		}}
	})
	l.until(t, "started", func() bool { return l.phase() == "started" })
	for folder, want := range map[string]os.FileMode{"run": 0o755, "run/state": 0o700, "lib": 0o755, "lib/data": 0o700} {
		if info, err := os.Stat(filepath.Join(dir, folder)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", folder, info, err, want)
		}
	}
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	if err := os.WriteFile(filepath.Join(home, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	l.change(func() { l.report, l.register = nil, nil })
	second := begin(t, dir, config)
	l.until(t, "clean", func() bool { return l.phase() == "clean" })
	if end := l.report.GetTasks()[0]; end.GetExitCode() != 7 || end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED {
		t.Errorf("report: %v", end)
	}
	starts, _ := os.ReadFile(filepath.Join(home, "starts"))
	out, _ := os.ReadFile(filepath.Join(home, "out-1"))
	if string(starts) != "start\n" || strings.TrimSpace(string(out)) != "/dev/nvidia1" {
		t.Errorf("starts %q, devices %q", starts, out)
	}
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Errorf("stopped: %v", err)
	}
}
