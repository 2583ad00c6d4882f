package server_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// inside returns a client for commands inside an attempt, whose calls a node forwards.
func (w *world) inside(node string, a auth.Attempt, at ...*controllerHost) *client.Client {
	w.t.Helper()
	if len(at) == 0 {
		at = w.all
	}
	var addrs []string
	for _, c := range at {
		addrs = append(addrs, c.addr)
	}
	calls := client.NewJobForwarder(client.Seeds(addrs...), pki.ClientTLS(w.ca.Trust(), w.identity(pki.RoleNode, node)))
	sockets := auth.NewJobSockets(w.t.TempDir(), calls, quiet())
	w.t.Cleanup(sockets.Stop)
	folder, err := sockets.Open(a, uint32(os.Getuid()))
	must(w.t, err)
	c, err := client.Dial(config.Client{JobSocket: filepath.Join(folder, auth.SocketFile), Timeout: time.Minute})
	must(w.t, err)
	w.t.Cleanup(c.Close)
	return c
}

// running submits a job and makes the node report that it runs.
func (w *world) running(n *node, user cluster.Identity, name string) auth.Attempt {
	w.t.Helper()
	spec := job(name)
	spec.Request = &greylagv1.Request{Nodes: 1}
	id := w.submit(w.as(user), spec)
	n.until(id, func(t *greylagv1.WantedTask) bool { return t != nil })
	return auth.Attempt{Job: cluster.JobID(id), Number: 1}
}

// until receives sets, and reports that all their tasks run, until ok accepts the task of a job.
func (n *node) until(id uint64, ok func(*greylagv1.WantedTask) bool) {
	n.w.t.Helper()
	for {
		set := n.next()
		var found *greylagv1.WantedTask
		var tasks []*greylagv1.ReportedTask
		for _, t := range set.GetTasks() {
			phase, cause := "started", ""
			if t.GetStop() {
				phase, cause = "clean", "stopped"
			}
			tasks = append(tasks, &greylagv1.ReportedTask{Job: t.GetJob(), Attempt: t.GetAttempt(), Phase: wire.Enum[greylagv1.TaskPhase](phase), Cause: wire.Enum[greylagv1.TaskCause](cause)})
			if t.GetJob() == id {
				found = t
			}
		}
		n.report(set.GetVersion(), tasks...)
		if ok(found) {
			return
		}
	}
}

// denied checks that a call was refused with a text.
func denied(t *testing.T, what string, err error, text string) {
	t.Helper()
	if connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want permission_denied with %q", what, err, text)
	}
}

func refOf(a auth.Attempt) string { r, _, _ := strings.Cut(a.String(), "."); return r }

// TestCommandsInAJobActForItsOwner checks that they see, submit and cancel what the owner may, and
// nothing else.
func TestCommandsInAJobActForItsOwner(t *testing.T) {
	w := newWorld(t, options{})
	n := newNode(w, "n1")
	a := w.running(n, ann, "outer")
	c := w.inside("n1", a)
	got, err := c.Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: refOf(a)})
	if must(t, err); got.GetJobs()[0].GetWorkDir() == "" {
		t.Error("a job does not see all of itself")
	}
	spec := job("inner")
	spec.Hold = true
	inner := w.submit(c, spec)
	shown, err := w.as(olga).Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: refOf(auth.Attempt{Job: cluster.JobID(inner)})})
	if must(t, err); shown.GetJobs()[0].GetUser() != "ann" {
		t.Errorf("a job that ann's job submitted is of %s", shown.GetJobs()[0].GetUser())
	}
	others := w.submit(w.as(bob), job("bob's"))
	for id, want := range map[uint64]greylagv1.ErrorCode{inner: 0, others: greylagv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED} {
		answer, err := c.Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{
			RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{refOf(auth.Attempt{Job: cluster.JobID(id)})}},
		})
		if must(t, err); answer.GetOutcomes()[0].GetCode() != want {
			t.Errorf("cancel job %d: %v, want %s", id, answer.GetOutcomes()[0], want)
		}
	}
	audit, err := w.as(root).Cluster().StreamAudit(t.Context(), &greylagv1.StreamAuditRequest{User: "ann", Kind: greylagv1.AuditKind_AUDIT_KIND_SUBMIT})
	must(t, err)
	var sources []string
	for audit.Receive() {
		sources = append(sources, audit.Msg().GetSource())
	}
	if must(t, audit.Err()); len(sources) != 2 || sources[1] != "job "+a.String()+" on n1" {
		t.Errorf("the audit journal says that the submissions came from %q", sources)
	}
}

// TestCommandsInAJobHaveNoRole checks that jobs of administrators and operators give their nodes no
// rights.
func TestCommandsInAJobHaveNoRole(t *testing.T) {
	w := newWorld(t, options{})
	n := newNode(w, "n1")
	others := refOf(auth.Attempt{Job: cluster.JobID(w.submit(w.as(bob), job("bob's")))})
	for _, user := range []cluster.Identity{root, olga} {
		c := w.inside("n1", w.running(n, user, user.User))
		_, err := c.Cluster().CreateToken(t.Context(), &greylagv1.CreateTokenRequest{})
		denied(t, user.User+" makes a token", err, "may not make join tokens: requires role admin")
		_, err = c.Cluster().UpdateNodes(t.Context(), &greylagv1.UpdateNodesRequest{RequestId: client.NewRequestID()})
		denied(t, user.User+" drains", err, "may not change nodes: requires role operator")
		_, err = c.Jobs().GetScript(t.Context(), &greylagv1.GetScriptRequest{Job: others})
		denied(t, user.User+" reads a script", err, "belongs to bob")
		_, err = c.Node().Register(t.Context(), &greylagv1.RegisterNodeRequest{BootId: "boot"})
		denied(t, user.User+" speaks as a node", err, "may not call")
	}
}

// TestAnIdentityEndsWithItsAttempt checks that an attempt that ended, runs elsewhere or never ran
// is no identity.
func TestAnIdentityEndsWithItsAttempt(t *testing.T) {
	w := newWorld(t, options{})
	n := newNode(w, "n1")
	newNode(w, "n2")
	a := w.running(n, ann, "first")
	waiting := job("waits")
	waiting.Hold = true
	held := auth.Attempt{Job: cluster.JobID(w.submit(w.as(ann), waiting)), Number: 1}
	ask := func(node string, a auth.Attempt) error {
		_, err := w.inside(node, a).Cluster().GetInfo(t.Context(), &greylagv1.GetInfoRequest{})
		return err
	}
	must(t, ask("n1", a))
	denied(t, "another node", ask("n2", a), "does not run on node n2")
	denied(t, "a node that never registered", ask("n7", a), "does not run on node n7")
	denied(t, "the next attempt", ask("n1", auth.Attempt{Job: a.Job, Number: 2}), "has had 1 attempts, not 2")
	denied(t, "a job that waits", ask("n1", held), "has had 0 attempts")
	denied(t, "an unknown job", ask("n1", auth.Attempt{Job: 4711, Number: 1}), "attempt 1 of job 4711 has ended; its identity is no longer valid")

	_, err := w.inside("n1", a).Jobs().UpdateJobs(t.Context(), &greylagv1.UpdateJobsRequest{
		RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{refOf(a)}}, Action: greylagv1.JobAction_JOB_ACTION_REQUEUE,
	})
	must(t, err)
	n.until(uint64(a.Job), func(task *greylagv1.WantedTask) bool { return task.GetStop() })
	w.until("the attempt has ended", func() bool { return ask("n1", a) != nil })
	err = ask("n1", a)
	denied(t, "an attempt that was requeued", err, "attempt 1 of job "+refOf(a)+" has ended; its identity is no longer valid")
	if hint := client.Hint(err); hint == "" {
		t.Error("no hint says what to do instead")
	}
}

// TestOnlyNodesNameAnAttempt sends the header with every other proof of identity.
func TestOnlyNodesNameAnAttempt(t *testing.T) {
	w := newWorld(t, options{})
	n := newNode(w, "n1")
	a := w.running(n, ann, "work")
	for _, p := range w.everyone() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+w.all[0].addr+"/greylag.v1.ClusterService/GetInfo", strings.NewReader("{}"))
		must(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set(auth.AttemptHeader, a.String())
		request.Header.Set("Greylag-Forwarded", "node/n1")
		if p.user != nil {
			token, err := w.signer.Token(*p.user, time.Now())
			must(t, err)
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := p.http.Do(request)
		must(t, err)
		response.Body.Close()
		// A controller forwards what it has checked; with a token the call is refused as well.
		want := http.StatusForbidden
		switch p.name {
		case "controller":
			want = http.StatusOK
		case "other+controller":
			want = http.StatusUnauthorized
		case "outsider": // no member: its caller asks another controller
			want = http.StatusServiceUnavailable
		}
		if response.StatusCode != want {
			t.Errorf("%s names an attempt: %s, want %d", p.name, response.Status, want)
		}
	}
}

// TestCommandsInAJobByWayOfAFollower checks that the leader checks the attempt, too.
func TestCommandsInAJobByWayOfAFollower(t *testing.T) {
	w := newWorld(t, options{controllers: 2})
	n := newNode(w, "n1")
	a := w.running(n, ann, "work")
	c := w.inside("n1", a, w.follower())
	w.submit(c, job("inner"))
	_, err := c.Cluster().GetInfo(t.Context(), &greylagv1.GetInfoRequest{})
	must(t, err)
	_, err = w.inside("n2", a, w.follower()).Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{job("forged")}})
	denied(t, "another node by way of a follower", err, "does not run on node n2")
}

// TestAStreamEndsWithItsAttempt checks that a watch that a job leaves open ends with its attempt.
func TestAStreamEndsWithItsAttempt(t *testing.T) {
	w := newWorld(t, options{})
	n := newNode(w, "n1")
	a := w.running(n, ann, "work")
	waiting := job("watched")
	waiting.Hold = true
	watched := refOf(auth.Attempt{Job: cluster.JobID(w.submit(w.as(ann), waiting))})
	open, ended := make(chan struct{}, 10), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	go func() {
		ended <- w.inside("n1", a).Watch(ctx, &greylagv1.WatchJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{watched}}}, func(*greylagv1.WatchJobsResponse) error {
			open <- struct{}{}
			return nil
		})
	}()
	<-open
	_, err := w.as(ann).Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{refOf(a)}}})
	must(t, err)
	n.until(uint64(a.Job), func(task *greylagv1.WantedTask) bool { return task.GetStop() })
	denied(t, "the watch", <-ended, "its identity is no longer valid")
}

// TestAnIdentityEndsWhereTheNodeNeverSaysSo: a compromised node does not report the end of a task,
// and keeps the identity of the attempt no longer than it takes to end one.
func TestAnIdentityEndsWhereTheNodeNeverSaysSo(t *testing.T) {
	var clock shifted
	w := newWorld(t, options{clock: clock.now, policy: func(p *cluster.Policy) { p.KillWait = time.Second }})
	n := newNode(w, "n1")
	a := w.running(n, ann, "work")
	c := w.inside("n1", a)
	ask := func() error {
		_, err := c.Cluster().GetInfo(t.Context(), &greylagv1.GetInfoRequest{})
		return err
	}
	must(t, ask())
	_, err := w.as(ann).Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{refOf(a)}}})
	must(t, err)
	must(t, ask()) // its processes may still end in order
	clock.by.Store(int64(62 * time.Second))
	denied(t, "an attempt that was cancelled", ask(), "its identity is no longer valid")
}

// TestOneUserLeavesOutputsToOthers checks that a node reads a bounded number of outputs, and that
// no user can use all of them.
func TestOneUserLeavesOutputsToOthers(t *testing.T) {
	w := newWorld(t, options{})
	n := newNode(w, "n1")
	jobs := map[cluster.Identity]auth.Attempt{ann: w.running(n, ann, "ann's"), bob: w.running(n, bob, "bob's")}
	open := func(user cluster.Identity, of auth.Attempt) error {
		stream, err := w.as(user).Jobs().StreamLogs(t.Context(), &greylagv1.StreamLogsRequest{Job: refOf(of), Follow: true})
		must(t, err)
		t.Cleanup(func() { _ = stream.Close() })
		stream.Receive() // the answer begins
		return stream.Err()
	}
	for range 16 {
		must(t, open(ann, jobs[ann]))
	}
	if err := open(ann, jobs[ann]); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one reader more: %v", err)
	}
	must(t, open(bob, jobs[bob]))
	for range 17 {
		must(t, open(olga, jobs[ann]))
	}
}
