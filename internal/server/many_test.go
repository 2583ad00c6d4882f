package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
)

func TestAnyControllerAnswers(t *testing.T) {
	w := newWorld(t, options{controllers: 3})
	follower := w.follower()
	c := w.as(ann, follower)
	var ids []string
	for i := range 5 {
		// A read on another controller returns what was just written through the first.
		ids = append(ids, fmt.Sprint(w.submit(c, job(fmt.Sprint("j", i)))))
		for _, at := range w.all {
			list, err := w.as(bob, at).Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{})
			must(t, err)
			if len(list.GetJobs()) != i+1 || list.GetAsOf().GetController() != at.log.Status().ID {
				t.Fatalf("controller %s shows %d jobs, want %d", at.addr, len(list.GetJobs()), i+1)
			}
		}
	}
	stale, err := w.as(bob, follower).Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{Read: &greylagv1.Read{Stale: true}})
	if must(t, err); !stale.GetAsOf().GetStale() {
		t.Errorf("a stale answer says it is fresh: %v", stale.GetAsOf())
	}
	text, err := w.as(ann, follower).Jobs().GetScript(t.Context(), &greylagv1.GetScriptRequest{Job: ids[0]})
	if must(t, err); string(text.GetScript()) != script {
		t.Errorf("a follower's script: %v", text)
	}
	// A node that dials a follower finds the leader.
	n := &node{w: w, session: w.program(pki.RoleNode, "n1", follower).Node()}
	if _, err := n.session.Register(t.Context(), &greylagv1.RegisterNodeRequest{BootId: "b", Cpus: 1}); err != nil {
		t.Errorf("register through a follower: %v", err)
	}
}

func TestTheLeaderIsLost(t *testing.T) {
	w := newWorld(t, options{controllers: 3})
	n := newNode(w, "n1")
	n.next()
	c := w.as(ann)
	w.submit(c, job("before"))
	n.next()
	old := w.leader()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_ = w.as(ann, old).Watch(ctx, &greylagv1.WatchJobsRequest{}, func(*greylagv1.WatchJobsResponse) error { return nil })
	}()
	old.stop()
	id := w.submit(c, job("after"))
	if got := stateOf(t, c, id); got != "PENDING" && got != "CONFIGURING" {
		t.Errorf("the job is %s", got)
	}
	select {
	case err := <-n.ended:
		if connect.CodeOf(err) != connect.CodeUnavailable {
			t.Logf("the node's stream ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the node does not notice")
	}
	again := newNode(w, "n1")
	if again.epoch != n.epoch {
		t.Errorf("the same boot is of epoch %d, then %d", n.epoch, again.epoch)
	}
	if set := again.next(); len(set.GetTasks()) == 0 {
		t.Errorf("the new leader wants %v", set)
	}
}

// TestAControllerWithoutHistory asks one whose archive is still being filled.
func TestAControllerWithoutHistory(t *testing.T) {
	w := newWorld(t, options{controllers: 2, complete: func() bool { return false }})
	c := w.as(ann, w.follower())
	id := w.submit(c, job("first"))
	list, err := c.Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{})
	must(t, err)
	if len(list.GetJobs()) != 1 || list.GetAsOf().GetController() != w.leader().log.Status().ID || stateOf(t, c, id) != "PENDING" {
		t.Errorf("the follower answers itself: %v", list)
	}
}

func TestNoLeader(t *testing.T) {
	w := newWorld(t, options{controllers: 2})
	w.submit(w.as(ann), job("one"))
	lone := w.follower()
	read := &greylagv1.ListJobsRequest{Read: &greylagv1.Read{Stale: true}}
	w.until("the follower's copy", func() bool {
		list, err := w.as(ann, lone).Jobs().ListJobs(t.Context(), read)
		return err == nil && len(list.GetJobs()) == 1
	})
	w.leader().stop()
	w.until("no leader", func() bool { id, _ := lone.log.Leader(); return id == "" })
	c := w.client(client.Config{TLS: pki.ClientTLS(w.ca.Trust(), nil), Tokens: w.tokens(ann), Timeout: time.Second}, []*controllerHost{lone})
	_, err := c.Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{Jobs: []*greylagv1.JobSpec{job("two")}})
	if connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("submit without a leader: %v", err)
	}
	list, err := c.Jobs().ListJobs(t.Context(), read)
	if must(t, err); len(list.GetJobs()) != 1 {
		t.Errorf("a stale read shows %v", list)
	}
	status, err := c.Cluster().GetStatus(t.Context(), &greylagv1.GetStatusRequest{})
	if must(t, err); status.GetLeader() != "" || len(status.GetMembers()) != 2 {
		t.Errorf("status: %v", status)
	}
}

// line is a connection to a controller that can lose answers.
type line struct {
	net.Listener
	to   string
	mu   sync.Mutex
	mute bool
	open []net.Conn
}

func newLine(t *testing.T, to string) *line {
	l := &line{to: to}
	var err error
	l.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close(); l.cut() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go l.forward(near)
		}
	}()
	return l
}

func (l *line) forward(near net.Conn) {
	far, err := net.Dial("tcp", l.to)
	if err != nil {
		near.Close()
		return
	}
	l.mu.Lock()
	l.open = append(l.open, near, far)
	l.mu.Unlock()
	go func() { _, _ = io.Copy(far, near) }()
	data := make([]byte, 64<<10)
	for {
		n, err := far.Read(data)
		l.mu.Lock()
		mute := l.mute
		l.mu.Unlock()
		if err != nil || mute {
			return // the answer is lost
		}
		if _, err := near.Write(data[:n]); err != nil {
			return
		}
	}
}

func (l *line) silence(mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute = mute
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		c.Close()
	}
	l.open = nil
}

func TestALostAnswerIsNotASecondJob(t *testing.T) {
	w := newWorld(t, options{})
	l := newLine(t, w.all[0].addr)
	c := w.as(ann, &controllerHost{addr: l.Addr().String()})
	first := w.submit(c, job("first")) // the connection remains open
	l.silence(true)
	ids := make(chan uint64)
	go func() { ids <- w.submit(c, job("once")) }()
	direct := w.as(ann)
	w.until("the job", func() bool {
		list, err := direct.Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{})
		return err == nil && len(list.GetJobs()) == 2
	})
	l.silence(false)
	l.cut()
	id := <-ids
	list, err := direct.Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{})
	if must(t, err); len(list.GetJobs()) != 2 || id != first+1 {
		t.Errorf("job %d, and the queue is %v", id, list.GetJobs())
	}
}
