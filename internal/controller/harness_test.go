package controller

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// rig is a controller over a real log of one member and a real archive.
type rig struct {
	t       testing.TB
	dir     string
	archive *archive.Archive
	replica *Replica
	log     *raftlog.Log
	*Controller
	stop func()

	passes, starts atomic.Int64 // as the rig observes its controller
}

// Passed counts.
func (r *rig) Passed(bool, time.Duration, bool) { r.passes.Add(1) }

// Started counts.
func (r *rig) Started(jobs, _ int) { r.starts.Add(int64(jobs)) }

// Orphans is not counted.
func (r *rig) Orphans(int) {}

// Called is part of Observer.
func (r *rig) Called(string, string) {}

const patience = 2 * time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newRig opens a controller in a directory. It leads when newRig returns, and runs its loops if
// loops is true.
func newRig(t testing.TB, dir string, loops bool) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir}
	quiet := slog.New(slog.DiscardHandler)
	var err error
	r.archive, err = archive.Open(filepath.Join(dir, "archive"), archive.Options{Pause: time.Millisecond})
	must(t, err)
	r.replica = NewReplica(r.archive, quiet)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r.log, err = raftlog.Open(raftlog.Config{
		ClusterID: "rig", Addr: "127.0.0.1:1", Dir: filepath.Join(dir, "raft"), Stream: raftlog.TCPStream{Listener: listener},
		Logger: quiet, ReserveBytes: -1,
		Profile: raftlog.Profile{Heartbeat: 50 * time.Millisecond, Election: 50 * time.Millisecond, Lease: 50 * time.Millisecond},
		Fatal:   func(code int, reason string) { t.Errorf("the log ends the process: %d %s", code, reason) },
	}, r.replica)
	must(t, err)
	if r.log.Status().Fresh {
		must(t, r.log.Bootstrap())
	}
	policy := cluster.DefaultPolicy()
	policy.KillWait = 0
	r.Controller = New(Config{Replica: r.replica, Log: r.log, Logger: quiet, ClusterID: "rig", Policy: policy})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	if loops {
		go func() { defer close(ended); r.Run(ctx) }()
		r.until("it leads", func() bool { _, leads := r.Leading(); return leads })
		r.until("the cluster has its name", func() bool { return r.replica.View().ClusterID() == "rig" })
	} else {
		close(ended)
		r.until("it leads", func() bool { _, err := r.log.ReadIndex(ctx); return err == nil })
	}
	done := false
	r.stop = func() {
		if done {
			return
		}
		done = true
		cancel()
		<-ended
		must(t, r.log.Close())
		must(t, r.archive.Close())
	}
	t.Cleanup(func() { r.stop() })
	return r
}

// until waits for a condition.
func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %s: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *rig) do(c command.Command) command.Result {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	result, _, err := r.Propose(ctx, c)
	must(r.t, err)
	if refusal, ok := result.(*command.Refusal); ok {
		r.t.Fatalf("%T refused: %s (%s)", c, refusal.Message, refusal.Hint)
	}
	return result
}

var ada = command.Actor{Identity: cluster.Identity{User: "ada", UID: 1000, GID: 1000}}

// node registers a node and returns its epoch.
func (r *rig) node(name string, gpus int32) uint64 {
	n := cluster.Node{Name: name, BootID: "boot of " + name, CPUs: 64, Memory: 512 * cluster.GiB}
	for i := range gpus {
		n.GPUs = append(n.GPUs, cluster.GPU{Index: i, Type: "h100", UUID: name, NUMA: -1})
	}
	return r.do(&command.RegisterNode{Node: n}).(*command.Registered).Epoch
}

// submit submits one job and returns its ID.
func (r *rig) submit(change func(*cluster.JobSpec)) cluster.JobID {
	spec := cluster.JobSpec{
		Name: "j", Owner: ada.Identity, WorkDir: "/", TimeLimit: time.Hour,
		Request: cluster.Request{Nodes: 1, GPUsPerNode: 1},
	}
	if change != nil {
		change(&spec)
	}
	return r.do(&command.SubmitJobs{Actor: ada, Jobs: []command.Submission{{Spec: spec}}}).(*command.Submitted).First[0]
}

func (r *rig) job(id cluster.JobID) *cluster.Job {
	r.t.Helper()
	j, ok := r.replica.View().Job(id)
	if !ok {
		r.t.Fatalf("job %d is unknown", id)
	}
	return j
}

func (r *rig) untilState(id cluster.JobID, state cluster.JobState) {
	r.t.Helper()
	r.until("job "+id.String()+" is "+state.String(), func() bool { return r.job(id).State == state })
}

// finish reports that every task of the node's jobs has run and is clean.
func (r *rig) finish(node string, epoch uint64) {
	r.t.Helper()
	view := r.replica.View()
	report := &command.ReportTasks{Node: node, Epoch: epoch, Seen: view.Index()}
	for j := range view.OnNode(node) {
		report.Tasks = append(report.Tasks, command.TaskReport{
			Job: j.ID, Attempt: j.Attempt, Task: cluster.Task{Node: node, Phase: cluster.TaskClean, Cause: cluster.Exited},
		})
	}
	r.do(report)
}

// check runs state.Check.
func (r *rig) check() {
	r.t.Helper()
	r.replica.mu.Lock()
	defer r.replica.mu.Unlock()
	must(r.t, r.replica.state.Check())
}

// changesOf collects the changes of a subscription until a condition holds.
func changesOf(t testing.TB, s *Subscription, enough func([]state.Change) bool) []state.Change {
	t.Helper()
	var all []state.Change
	deadline := time.After(patience)
	for !enough(all) {
		select {
		case <-s.C():
			changes, resync := s.Take()
			if resync {
				t.Fatal("resync")
			}
			all = append(all, changes...)
		case <-deadline:
			t.Fatalf("not within %s; so far %+v", patience, all)
		}
	}
	return all
}
