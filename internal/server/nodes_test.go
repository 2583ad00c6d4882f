package server_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/wire"
)

// node simulates a gnoded that sends what the test chooses.
type node struct {
	w       *world
	session *client.NodeSession
	epoch   uint64
	sets    chan *greylagv1.WatchTasksResponse
	ended   chan error
}

// newNode registers a node with two GPUs and opens its stream.
func newNode(w *world, name string) *node {
	n := &node{w: w, session: w.program(pki.RoleNode, name).Node(), sets: make(chan *greylagv1.WatchTasksResponse, 100), ended: make(chan error, 1)}
	answer, err := n.session.Register(w.t.Context(), &greylagv1.RegisterNodeRequest{
		BootId: "boot", Cpus: 8, Memory: 32 << 30,
		Gpus: []*greylagv1.GPU{{Uuid: "u0", Type: "h100", Memory: 80 << 30}, {Index: 1, Uuid: "u1", Type: "h100", Memory: 80 << 30}},
	})
	must(w.t, err)
	if n.epoch = answer.GetEpoch(); n.epoch == 0 || answer.GetCluster() != "test" {
		w.t.Fatalf("registered as %v", answer)
	}
	n.listen()
	return n
}

func (n *node) listen() {
	go func() {
		n.ended <- n.session.Wanted(n.w.t.Context(), &greylagv1.WatchTasksRequest{Epoch: n.epoch}, func(m *greylagv1.WatchTasksResponse) error {
			n.sets <- m
			return nil
		})
	}()
}

// next returns the next message that is more than a heartbeat.
func (n *node) next() *greylagv1.WatchTasksResponse {
	n.w.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		select {
		case m := <-n.sets:
			if !m.GetHeartbeat() || len(m.GetLogs()) > 0 {
				return m
			}
		case err := <-n.ended:
			n.w.t.Fatalf("the stream ended: %v", err)
		case <-late:
			n.w.t.Fatal("the node hears nothing new")
		}
	}
}

// busy returns the next set that is not empty.
func (n *node) busy() *greylagv1.WatchTasksResponse {
	n.w.t.Helper()
	for {
		if set := n.next(); len(set.GetTasks()) > 0 {
			return set
		}
	}
}

func (n *node) report(seen uint64, tasks ...*greylagv1.ReportedTask) {
	n.w.t.Helper()
	_, err := n.session.Report(n.w.t.Context(), &greylagv1.ReportTasksRequest{Epoch: n.epoch, Seen: seen, Tasks: tasks})
	must(n.w.t, err)
}

func TestANodeRunsAJob(t *testing.T) {
	w := newWorld(t, options{})
	n := newNode(w, "n1")
	if set := n.next(); len(set.GetTasks()) != 0 || set.GetVersion() == 0 {
		t.Fatalf("a new node is wanted to run %v", set)
	}
	c := w.as(ann)
	spec := job("work")
	spec.Request = &greylagv1.Request{GpusPerNode: 1}
	spec.Output = "/tmp/%j.out"
	id := w.submit(c, spec)
	set := n.next()
	task := set.GetTasks()[0]
	if task.GetJob() != id || task.GetAttempt() != 1 || task.GetUid() != 1001 || task.GetOutput() != "/tmp/%j.out" ||
		len(task.GetNodes()[0].GetGpus()) != 1 || task.GetStop() || task.GetIdle() {
		t.Fatalf("wanted %v", task)
	}
	content, err := n.session.Fetch(t.Context(), &greylagv1.GetContentRequest{Digest: task.GetScript()})
	if must(t, err); string(content.GetContent()) != script {
		t.Errorf("fetched %q", content.GetContent())
	}
	other := sha256.Sum256([]byte("another"))
	if _, err := n.session.Fetch(t.Context(), &greylagv1.GetContentRequest{Digest: other[:]}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("fetched another node's content: %v", err)
	}
	tell := &greylagv1.ReportedTask{Job: id, Attempt: 1, Phase: greylagv1.TaskPhase_TASK_PHASE_STARTED}
	n.report(set.GetVersion(), tell)
	w.until("RUNNING", func() bool { return stateOf(t, c, id) == "RUNNING" })
	for range 3 { // repetitions change nothing and add no log entry
		n.report(set.GetVersion(), tell)
	}
	tell.Phase, tell.Cause, tell.ExitCode = greylagv1.TaskPhase_TASK_PHASE_ENDED, greylagv1.TaskCause_TASK_CAUSE_EXITED, 3
	n.report(set.GetVersion(), tell)
	w.until("COMPLETING", func() bool { return stateOf(t, c, id) == "COMPLETING" })
	if set = n.next(); !set.GetTasks()[0].GetStop() {
		t.Fatalf("wanted %v of a job that is over", set)
	}
	tell.Phase = greylagv1.TaskPhase_TASK_PHASE_CLEAN
	n.report(set.GetVersion(), tell)
	w.until("FAILED", func() bool { return stateOf(t, c, id) == "FAILED" })
	if set = n.next(); len(set.GetTasks()) != 0 {
		t.Errorf("still wanted: %v", set)
	}
}

func stateOf(t *testing.T, c *client.Client, id uint64) string {
	t.Helper()
	got, err := c.Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: fmt.Sprint(id)})
	must(t, err)
	return wire.Word(got.GetJobs()[0].GetState())
}

func TestANodeThatIsNotOne(t *testing.T) {
	w := newWorld(t, options{})
	newNode(w, "n1").next()
	session := w.program(pki.RoleNode, "n2").Node()
	if _, err := session.Report(t.Context(), &greylagv1.ReportTasksRequest{Epoch: 1}); connect.CodeOf(err) == connect.CodeInternal || err == nil {
		t.Errorf("a node that never registered reports: %v", err)
	}
	err := session.Wanted(t.Context(), &greylagv1.WatchTasksRequest{Epoch: 7}, func(*greylagv1.WatchTasksResponse) error { return nil })
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("and listens: %v", err)
	}
	if _, err = session.Register(t.Context(), &greylagv1.RegisterNodeRequest{BootId: "b", Cpus: -4}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("and has -4 CPUs: %v", err)
	}
}

func TestLogs(t *testing.T) {
	w := newWorld(t, options{controllers: 2})
	n := newNode(w, "n1")
	n.next()
	c := w.as(ann, w.follower()) // which forwards what the leader receives
	spec := job("talks")
	spec.Output = "/tmp/talk"
	id := w.submit(c, spec)
	n.next()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := c.Jobs().StreamLogs(ctx, &greylagv1.StreamLogsRequest{Job: fmt.Sprint(id), Follow: true, TailLines: 100})
	must(t, err)
	request := n.next().GetLogs()[0]
	if request.GetJob() != id || request.GetTailLines() != 100 || request.GetOffset() != -1 || !request.GetFollow() || request.GetTask().GetOutput() != "/tmp/talk" {
		t.Fatalf("the node is asked for %v", request)
	}
	push := func(p *greylagv1.PushLogRequest) *greylagv1.PushLogResponse {
		p.Id = request.GetId()
		answer, err := n.session.PushLog(t.Context(), p)
		must(t, err)
		return answer
	}
	push(&greylagv1.PushLogRequest{Data: []byte("hello ")})
	push(&greylagv1.PushLogRequest{Data: []byte("world"), Next: 411})
	var text strings.Builder
	for text.String() != "hello world" && stream.Receive() {
		text.Write(stream.Msg().GetData())
	}
	must(t, stream.Err())
	if next := stream.Msg().GetNext(); next != 411 {
		t.Errorf("the next byte is %d", next)
	}
	// Another node cannot report for this one.
	answer, err := newNode(w, "n2").session.PushLog(t.Context(), &greylagv1.PushLogRequest{Id: request.GetId(), Data: []byte("lies")})
	if must(t, err); !answer.GetStop() {
		t.Error("another node pushes into the reader")
	}
	cancel()
	if over := n.next().GetLogs()[0]; !over.GetCancelled() || over.GetId() != request.GetId() {
		t.Errorf("the reader left and the node heard %v", over)
	}
	if !push(&greylagv1.PushLogRequest{Data: []byte("more")}).GetStop() {
		t.Error("pushing to a reader who left goes on")
	}
	stream.Close()
	again, stop := context.WithCancel(t.Context()) // continues after the last one received
	stream, err = c.Jobs().StreamLogs(again, &greylagv1.StreamLogsRequest{Job: fmt.Sprint(id), Follow: true, TailLines: 100, From: 411})
	must(t, err)
	if request := n.next().GetLogs()[0]; request.GetOffset() != 411 || request.GetTailLines() != 0 {
		t.Errorf("the node is asked for %v", request)
	}
	stop()
	stream.Close()
}

func TestLogsThatCannotBeRead(t *testing.T) {
	w := newWorld(t, options{})
	c := w.as(ann)
	logs := func(c *client.Client, request *greylagv1.StreamLogsRequest) error {
		stream, err := c.Jobs().StreamLogs(t.Context(), request)
		if err != nil {
			return err
		}
		defer stream.Close()
		for stream.Receive() {
		}
		return stream.Err()
	}
	id := w.submit(c, job("waits"))
	for _, x := range []struct {
		c       *client.Client
		request *greylagv1.StreamLogsRequest
		want    connect.Code
		says    string
	}{
		{c, &greylagv1.StreamLogsRequest{Job: fmt.Sprint(id)}, connect.CodeFailedPrecondition, "has no output yet: it has not started"},
		{c, &greylagv1.StreamLogsRequest{Job: "99"}, connect.CodeNotFound, "99"},
		{c, &greylagv1.StreamLogsRequest{Job: "what"}, connect.CodeInvalidArgument, "what"},
		{w.as(bob), &greylagv1.StreamLogsRequest{Job: fmt.Sprint(id)}, connect.CodePermissionDenied, fmt.Sprintf("job %d belongs to ann", id)},
	} {
		if err := logs(x.c, x.request); connect.CodeOf(err) != x.want || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%v: %v, want %v, %q", x.request, err, x.want, x.says)
		}
	}
	n := newNode(w, "n1")
	n.busy()
	if err := logs(c, &greylagv1.StreamLogsRequest{Job: fmt.Sprint(id), Rank: 1}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("rank 1 of 1 node: %v", err)
	}
	go func() {
		request := n.next().GetLogs()[0]
		_, _ = n.session.PushLog(context.WithoutCancel(t.Context()), &greylagv1.PushLogRequest{Id: request.GetId(), Error: "no such file", Eof: true})
	}()
	err := logs(c, &greylagv1.StreamLogsRequest{Job: fmt.Sprint(id)})
	var refused *connect.Error
	if !errors.As(err, &refused) || refused.Message() != "job 1 has no output yet: its nodes have not begun it (node n1: no such file)" {
		t.Errorf("the node's error came as %v", err)
	}
}

// TestTwoHostsOfOneName checks that a copy of a node's disk does not end the jobs of the node.
func TestTwoHostsOfOneName(t *testing.T) {
	w := newWorld(t, options{})
	register := func(session *client.NodeSession, boot string) (uint64, error) {
		answer, err := session.Register(t.Context(), &greylagv1.RegisterNodeRequest{BootId: boot, Cpus: 8, Memory: 32 << 30})
		return answer.GetEpoch(), err
	}
	first, copied := w.program(pki.RoleNode, "n1").Node(), w.program(pki.RoleNode, "n1").Node()
	epoch, err := register(first, "one")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	begun, once := make(chan struct{}), sync.Once{}
	go first.Wanted(ctx, &greylagv1.WatchTasksRequest{Epoch: epoch}, func(*greylagv1.WatchTasksResponse) error { once.Do(func() { close(begun) }); return nil })
	<-begun
	if _, err := register(copied, "other"); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("another host of the same name: %v", err)
	}
	if again, err := register(first, "one"); err != nil || again != epoch {
		t.Errorf("the host itself: epoch %d, then %d, %v", epoch, again, err)
	}
	cancel()
	w.until("the host restarted", func() bool { _, err := register(copied, "other"); return err == nil })
}
