package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

// TestCreditsKilledAtEachStep kills the leader at every step from the lien to the settlement:
// during the step, and as soon as a follower shows its result.
func TestCreditsKilledAtEachStep(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	b := newBank(t, twoNodes(), "")
	for i, after := range []time.Duration{0, 3 * time.Millisecond} {
		b.killSubmitting(ctx, fmt.Sprint("submitting-", i), after)
	}
	b.killReserved(ctx)
	b.killReporting(ctx)
	for _, step := range []struct {
		name   string
		states []string // the first of them that is seen
		ends   bool     // before the leader does
	}{
		{"starting", []string{"CONFIGURING", "RUNNING"}, false},
		{"running", []string{"RUNNING"}, false},
		{"ending", []string{"COMPLETING", "COMPLETED"}, true},
		{"settled", []string{"COMPLETED"}, true},
	} {
		leader, gate := b.leader(ctx), b.gate(step.name)
		id, err := b.spend(ctx, b.gpuJob(step.name, gate.then("exit 0")))
		b.must(err)
		watched := func() {
			if step.ends {
				gate.open()
			}
		}
		t.Logf("%s: killed when the job was seen %s", step.name, b.killWhen(ctx, leader, id, step.states, watched))
		gate.open()
		b.comeBack(ctx, leader, id)
	}
	b.idle(ctx)
	b.account(ctx)
}

// killSubmitting kills the leader a moment after a submission was sent. Whether it was committed
// before or is sent again, it is applied once, with one lien.
func (b *bank) killSubmitting(ctx context.Context, name string, after time.Duration) {
	b.t.Helper()
	leader := b.leader(ctx)
	var sent sync.WaitGroup
	var id uint64
	var failed error
	sent.Go(func() { id, failed = b.spend(ctx, b.gpuJob(name, "exit 0")) })
	b.wait(ctx, after)
	b.must(leader.Kill())
	sent.Wait()
	b.must(failed)
	b.comeBack(ctx, leader, id)
}

// killReserved is scenario 12: the leader ends between lien and dispatch. The next one dispatches
// under the same lien, and the job is launched once.
func (b *bank) killReserved(ctx context.Context) {
	b.t.Helper()
	leader := b.leader(ctx)
	job := b.gpuJob("reserved", "exit 0")
	job.Hold = true
	id, err := b.spend(ctx, job)
	b.must(err)
	b.must(leader.Kill())
	got, err := b.get(ctx, id)
	if err != nil || got.State != greylagv1.JobState_JOB_STATE_PENDING || got.Started != nil {
		b.t.Errorf("job %d was to wait: %v, %v", id, got, err)
	}
	b.ok(tester, "gctl", "release", ref(id))
	b.comeBack(ctx, leader, id)
}

// killReporting kills the leader when the script has done its work: its end is being reported, or
// is about to be.
func (b *bank) killReporting(ctx context.Context) {
	b.t.Helper()
	leader := b.leader(ctx)
	id, err := b.spend(ctx, b.gpuJob("reporting", "touch "+b.Work+"/did-$GREYLAG_JOB_ID"))
	b.must(err)
	b.until("the script has ended", func() (bool, error) { return b.exists("did-" + ref(id)), nil })
	b.must(leader.Kill())
	b.comeBack(ctx, leader, id)
}

// comeBack restarts the killed controller when the job has ended without it, and checks that it was
// the job's only attempt.
func (b *bank) comeBack(ctx context.Context, killed *cluster.Controller, id uint64) {
	b.t.Helper()
	if job := b.await(ctx, id, "COMPLETED"); job.Attempt != 1 {
		b.t.Errorf("job %d needed %d attempts", id, job.Attempt)
	}
	b.must(killed.Start())
	b.must(audit.AwaitFollower(ctx, b.Cluster, killed))
}

// killWhen kills the leader when a follower shows a job in one of the states, and returns that
// state. watched is called when the follower begins to show it.
func (b *bank) killWhen(ctx context.Context, leader *cluster.Controller, id uint64, states []string, watched func()) string {
	b.t.Helper()
	stream, err := b.others(leader)[0].Jobs().WatchJobs(ctx, &greylagv1.WatchJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{ref(id)}}})
	b.must(err)
	defer stream.Close()
	for first := true; stream.Receive(); first = false {
		if first {
			watched()
		}
		for _, job := range stream.Msg().Jobs {
			if contains(states, wire.Word(job.State)) {
				b.must(leader.Kill())
				return wire.Word(job.State)
			}
		}
	}
	b.t.Fatalf("job %d was never seen %v: %v", id, states, stream.Err())
	return ""
}

// TestCreditsAllKilled is scenario 13: all controllers end while jobs are submitted. Each job
// exists with its lien or neither does, and a repeated request gets the same job.
func TestCreditsAllKilled(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	options := three()
	options.Nodes = 0
	b := newBank(t, options, "")
	for round := range 4 {
		var sent sync.WaitGroup
		for i := range 8 {
			job := b.gpuJob(fmt.Sprintf("round-%d-%d", round, i), "exit 0")
			job.Hold, job.Request.GpuTypes, job.Qos = true, []string{"h100"}, "standard"
			sent.Go(func() {
				if _, err := b.spend(ctx, job); err != nil {
					t.Error(err)
				}
			})
		}
		b.wait(ctx, time.Duration(rand.IntN(15))*time.Millisecond)
		for _, ctl := range b.Controllers() {
			b.must(ctl.Kill())
		}
		for _, ctl := range b.Controllers() {
			b.must(ctl.Start())
		}
		sent.Wait()
	}
	b.account(ctx)
}

// TestCreditsWithoutQuorum is scenarios 17, 28 and 46: the controllers have no quorum for a while.
// No lien is placed meanwhile; a running job continues, ends, and is charged once afterwards; a
// bucket that expired meanwhile expired at its time, once.
func TestCreditsWithoutQuorum(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	b := newBank(t, twoNodes(), "")
	gate := b.gate("no quorum")
	id, err := b.spend(ctx, b.gpuJob("goes on", gate.then("touch "+b.Work+"/over; exit 7")))
	b.must(err)
	b.await(ctx, id, "RUNNING")
	expires := time.Now().Add(15 * time.Second) // before that there must be no quorum left
	const soon = 987_654_321
	b.must(b.change(ctx, grantRequest(&greylagv1.GrantCredits{
		Account: "ml", Class: greylagv1.BucketClass_BUCKET_CLASS_PROMO, Amount: soon, Expires: timestamppb.New(expires), Scope: &greylagv1.BucketScope{Qos: []string{"premium"}},
	})))
	leader := b.leader(ctx)
	for _, ctl := range b.others(leader) {
		b.must(ctl.Kill())
	}
	refused := b.gpuJob("no quorum", "exit 0")
	once, cancel := context.WithTimeout(ctx, 3*time.Second)
	_, err = leader.Jobs().SubmitJobs(once, &greylagv1.SubmitJobsRequest{RequestId: refused.Name, Jobs: []*greylagv1.JobSpec{refused}})
	cancel()
	if code := connect.CodeOf(err); code != connect.CodeUnavailable && code != connect.CodeDeadlineExceeded {
		t.Errorf("a submission without a quorum: %v", err)
	}
	b.must(leader.Kill())
	gate.open()
	b.until("the job ends without a controller", func() (bool, error) { return b.exists("over"), nil })
	b.wait(ctx, time.Until(expires)+time.Second)
	again := time.Now()
	for _, ctl := range b.Controllers() {
		b.must(ctl.Start())
	}
	_, err = b.spend(ctx, refused) // the same request again
	b.must(err)
	late := b.gpuJob("would be paid from it", "exit 0")
	late.Qos = "premium"
	lateID, err := b.spend(ctx, late)
	b.must(err)
	b.await(ctx, lateID, "COMPLETED")
	if job := b.await(ctx, id, "FAILED"); job.ExitCode != 7 || job.Attempt != 1 {
		t.Errorf("the job that went on ended with %d in attempt %d", job.ExitCode, job.Attempt)
	}
	b.idle(ctx)
	b.account(ctx)
	book, _, err := audit.Money{Cluster: b.Cluster}.Book(ctx)
	b.must(err)
	lost := book.Expired()
	if len(lost) != 1 || lost[0].Amount != soon || lost[0].Effective.Sub(expires).Abs() > time.Microsecond || lost[0].Booked.Before(again) {
		t.Errorf("%+v expired, want %d at %s, booked after %s", lost, soon, expires, again)
	}
}

// TestCreditsDisksFull is scenario 46: no controller has a free byte. A submission is refused and
// leaves neither a job nor a lien; a running job continues.
func TestCreditsDisksFull(t *testing.T) {
	t.Parallel()
	needsRoot(t, "a file system of its own")
	ctx := limited(t, 4*hang)
	b := newBank(t, onDisks(), "")
	gate := b.gate("disks are full")
	id, err := b.spend(ctx, b.gpuJob("goes on", gate.then("exit 7")))
	b.must(err)
	b.await(ctx, id, "RUNNING")
	for _, ctl := range b.Controllers() {
		b.must(ctl.Fill())
	}
	refused := 0
	for i := 0; i < 60 && refused < 4; i++ { // free pages of a log are soon used up
		job := b.gpuJob(fmt.Sprint("no room ", i), "exit 0")
		once, cancel := context.WithTimeout(ctx, time.Second)
		if _, err := b.spend(once, job); err != nil {
			refused++
		}
		cancel()
	}
	if refused < 4 {
		t.Errorf("%d submissions were refused while the disks were full", refused)
	}
	gate.open()
	for _, ctl := range b.Controllers() {
		b.must(ctl.Drain())
		if !ctl.Running() {
			t.Logf("%s had ended with status %d", ctl.Name, ctl.ExitCode())
			b.must(ctl.Start())
		}
	}
	b.until("submissions are taken again", func() (bool, error) {
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := b.spend(once, b.gpuJob(fmt.Sprint("room ", time.Now().UnixNano()), "exit 0"))
		return err == nil, err
	})
	if job := b.await(ctx, id, "FAILED"); job.ExitCode != 7 || job.Attempt != 1 {
		t.Errorf("the job that went on ended with %d in attempt %d", job.ExitCode, job.Attempt)
	}
	b.idle(ctx)
	b.account(ctx)
}

// TestCreditsClockAhead is scenario 22: a controller whose clock is ten minutes ahead is made the
// leader repeatedly. Credits that expire in eight minutes do not expire.
func TestCreditsClockAhead(t *testing.T) {
	t.Parallel()
	options := three()
	options.Nodes, options.Clocks = 0, true
	b := newBank(t, options, "")
	ctx := limited(t, 4*hang) // after gctld was rebuilt
	b.must(b.change(ctx, grantRequest(&greylagv1.GrantCredits{
		Account: "ml", Class: greylagv1.BucketClass_BUCKET_CLASS_PROMO, Amount: 1_000_000_123, Expires: timestamppb.New(time.Now().Add(8 * time.Minute)),
	})))
	wrong := b.others(b.leader(ctx))[0]
	status, err := wrong.Status(ctx)
	b.must(err)
	b.must(wrong.SetClock(10 * time.Minute))
	for round := range 3 {
		b.until("leadership is handed to it", func() (bool, error) {
			result := b.run(tester, "gctl", "cluster", "transfer", status.Id)
			refused := strings.Contains(result.Stderr, "clock")
			return result.Exit == 0 || refused, fmt.Errorf("exit status %d: %s", result.Exit, result.Stderr)
		})
		for i := range 5 {
			job := b.gpuJob(fmt.Sprintf("spends-%d-%d", round, i), "exit 0")
			job.Hold, job.Request.GpuTypes, job.Qos = true, []string{"h100"}, "standard"
			_, err := b.spend(ctx, job)
			b.must(err)
		}
	}
	b.must(wrong.SetClock(0))
	b.account(ctx)
	book, _, err := audit.Money{Cluster: b.Cluster}.Book(ctx)
	b.must(err)
	if lost := book.Expired(); len(lost) > 0 {
		t.Errorf("%+v expired", lost)
	}
}

// TestCreditsLateNodes is scenario 14: two nodes are lost with jobs whose counters were never
// reported, and nothing is charged for those. When the nodes return, the jobs are charged: exactly
// if the same daemon still runs, and from the record of the script's start if it is another one.
func TestCreditsLateNodes(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	options := twoNodes()
	options.Controllers = 1
	options.Policy = strings.ReplaceAll(quickKill(), `"30s"`, `"20s"`)
	b := newBank(t, options, "")
	jobs := map[uint64]time.Duration{}
	for i, unproven := range []time.Duration{0, 5 * time.Second} {
		job := b.gpuJob(fmt.Sprint("lost-", i), "sleep 1000")
		job.NoRequeue, job.Request.NodeList = true, []string{b.Node(i).Name}
		begun := time.Now()
		id, err := b.spend(ctx, job)
		b.must(err)
		b.await(ctx, id, "RUNNING")
		if jobs[id] = unproven; unproven > 0 {
			jobs[id] += time.Since(begun) // the script began later than the job
		}
	}
	b.must(b.Node(0).Pause())
	b.must(b.Node(1).Kill())
	for id := range jobs {
		if job := b.await(ctx, id, "NODE_FAIL"); job.Charged != 0 {
			t.Errorf("job %d was charged %d without a report", id, job.Charged)
		}
	}
	b.must(b.Node(0).Resume())
	b.must(b.Node(1).Start())
	money := audit.Money{Cluster: b.Cluster, Paid: b.paid, Price: price, Amended: jobs}
	b.until("the bills are amended", func() (bool, error) {
		err := money.Check(ctx)
		return err == nil, err
	})
	b.verified(ctx)
}

// TestCreditsNodesLost loses a node and takes it back while jobs are requeued and the leader is
// killed: every attempt is charged separately, and none twice.
func TestCreditsNodesLost(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	options := twoNodes()
	options.Policy = strings.ReplaceAll(quickKill(), `"30s"`, `"20s"`)
	b := newBank(t, options, "")
	var jobs []uint64
	gate := b.gate("given up")
	for i := range 12 {
		first := gate.then("exit 0")
		if i < 4 {
			first = fmt.Sprintf("sleep %d", 5+2*i)
		}
		id, err := b.spend(ctx, b.gpuJob(fmt.Sprint("again-", i), "[ $GREYLAG_ATTEMPT -gt 1 ] && exit 0; "+first))
		b.must(err)
		jobs = append(jobs, id)
	}
	for _, id := range jobs {
		b.await(ctx, id, "RUNNING", "COMPLETED")
	}
	b.must(b.Node(0).Pause())
	_, err := audit.Failover(ctx, b.Cluster, b.client.Jobs(), b.answers)
	b.must(err)
	for _, id := range jobs[8:] { // some of them are on the lost node
		done, err := b.client.Jobs().UpdateJobs(ctx, &greylagv1.UpdateJobsRequest{RequestId: "again " + ref(id), Filter: &greylagv1.Filter{Jobs: []string{ref(id)}}, Action: greylagv1.JobAction_JOB_ACTION_REQUEUE})
		if err != nil || len(done.Outcomes) != 1 || done.Outcomes[0].Error != "" {
			t.Fatalf("requeue job %d: %v, %v", id, done, err)
		}
	}
	b.must(b.AwaitNode(ctx, b.Node(0).Name, "DOWN"))
	_, err = audit.Failover(ctx, b.Cluster, b.client.Jobs(), b.answers)
	b.must(err)
	gate.open()
	b.must(b.Node(0).Resume())
	b.idle(ctx)
	again := uint32(0)
	for _, id := range jobs {
		again += b.await(ctx, id, "COMPLETED").Attempt - 1
	}
	if t.Logf("%d attempts more than jobs", again); again < 4 {
		t.Errorf("only %d attempts were repeated: too few to say anything", again)
	}
	b.account(ctx)
}
