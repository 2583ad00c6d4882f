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
	"github.com/anishathalye/porcupine"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

// recorder lets clients work on a few jobs at a time, each request sent to any controller, and
// records requests and answers.
type recorder struct {
	cluster *cluster.Cluster
	begun   time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	ids     map[string]uint64 // keys with a known ID
	serial  int
	unknown int
}

func newRecorder(c *cluster.Cluster) *recorder {
	return &recorder{cluster: c, begun: time.Now(), ids: map[string]uint64{}}
}

// openKeys is how many jobs are in use at a time, opsPerKey for how many operations.
const (
	openKeys  = 6
	opsPerKey = 60
)

// client sends one request after the other until ctx ends. It waits for the last answer.
func (r *recorder) client(ctx context.Context, client int) {
	for ctx.Err() == nil {
		op := r.choose()
		asked := time.Since(r.begun)
		got, known := r.ask(ctx, client, op)
		answered := time.Since(r.begun)
		if !known && op.kind == opGet {
			continue // an unanswered read has no information
		}
		r.note(client, op, got, asked, answered)
	}
}

// choose picks a job and an operation. Until its ID is known, the only one is to submit it again.
func (r *recorder) choose() operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serial++
	key := fmt.Sprintf("k%d", r.serial/opsPerKey*openKeys+rand.IntN(openKeys))
	op := operation{key: key, kind: opSubmit}
	if r.ids[key] == 0 {
		return op
	}
	switch choice := rand.IntN(100); {
	case choice < 5:
	case choice < 35:
		op.kind, op.text = opSet, fmt.Sprintf("w%d", r.serial)
	case choice < 37:
		op.kind = opCancel
	default:
		op.kind = opGet
	}
	return op
}

func (r *recorder) note(client int, op operation, got answer, asked, answered time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if got.unknown {
		r.unknown++
		answered = time.Hour // it may still happen: after everything else
	} else if op.kind == opSubmit {
		r.ids[op.key] = got.id
	}
	r.history = append(r.history, porcupine.Operation{
		ClientId: client, Input: op, Output: got, Call: int64(asked), Return: int64(answered),
	})
}

// await waits until that many more operations were answered.
func (r *recorder) await(ctx context.Context, t testing.TB, more int) {
	t.Helper()
	answered := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.history)
	}
	goal := answered() + more
	if err := cluster.Until(ctx, "clients are served", func() (bool, error) { return answered() >= goal, nil }); err != nil {
		t.Fatal(err)
	}
}

func (r *recorder) id(key string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[key]
}

// ask sends the request, with one request ID, to one controller after another until one answers.
// known is false without an answer in time.
func (r *recorder) ask(ctx context.Context, client int, op operation) (got answer, known bool) {
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	request := fmt.Sprintf("%s-%d-%d", op.key, client, time.Now().UnixNano())
	for patience.Err() == nil {
		ctl := r.cluster.Controller(rand.IntN(len(r.cluster.Controllers())))
		once, cancel := context.WithTimeout(patience, 3*time.Second)
		got, err := r.once(once, ctl, op, request)
		cancel()
		if err == nil {
			return got, true
		}
		if op.kind == opGet {
			return answer{}, false // a later attempt is another read
		}
		if !ctl.Running() {
			time.Sleep(10 * time.Millisecond) // refused at once: do not spin
		}
	}
	return answer{unknown: true}, false
}

// once is one attempt. An error means that the outcome is unknown.
func (r *recorder) once(ctx context.Context, ctl *cluster.Controller, op operation, request string) (answer, error) {
	job := fmt.Sprint(r.id(op.key))
	filter := &greylagv1.Filter{Jobs: []string{job}}
	switch op.kind {
	case opSubmit:
		done, err := ctl.Jobs().SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: op.key, Jobs: []*greylagv1.JobSpec{audit.Waiting(op.key)}})
		if err != nil {
			return answer{}, err
		}
		return answer{id: done.Jobs[0].Id}, nil
	case opSet:
		done, err := ctl.Jobs().UpdateJobs(ctx, &greylagv1.UpdateJobsRequest{RequestId: request, Filter: filter, Action: greylagv1.JobAction_JOB_ACTION_SET, Comment: &op.text})
		return refusal(done.GetOutcomes(), err)
	case opCancel:
		done, err := ctl.Jobs().CancelJobs(ctx, &greylagv1.CancelJobsRequest{RequestId: request, Filter: filter})
		return refusal(done.GetOutcomes(), err)
	default:
		found, err := ctl.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: job})
		if connect.CodeOf(err) == connect.CodeNotFound && err != nil {
			return answer{missing: true}, nil
		}
		if err != nil {
			return answer{}, err
		}
		one := found.Jobs[0]
		return answer{id: one.Id, state: wire.Word(one.State), comment: one.Comment}, nil
	}
}

// refusal distinguishes a change that was made, one that was refused because the job has ended, and
// a missing answer.
func refusal(outcomes []*greylagv1.Outcome, err error) (answer, error) {
	switch code := connect.CodeOf(err); {
	case err == nil && len(outcomes) == 1:
		return answer{refused: outcomes[0].Error != ""}, nil
	case err == nil:
		return answer{}, fmt.Errorf("%d outcomes for one job", len(outcomes))
	case code == connect.CodeFailedPrecondition || code == connect.CodeNotFound:
		return answer{refused: true}, nil
	}
	return answer{}, err
}

// check reports whether some order of the operations explains all answers.
func (r *recorder) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch porcupine.CheckOperationsTimeout(model(), r.history, hang) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("no verdict on %d operations, %d of them unknown, within %s", len(r.history), r.unknown, hang)
	}
	return fmt.Errorf("not linearizable: %s", r.worst())
}

// worst prints the history of a job that no order explains.
func (r *recorder) worst() string {
	for _, part := range byKey(r.history) {
		if !porcupine.CheckOperations(model(), part) {
			var b strings.Builder
			for _, op := range part {
				fmt.Fprintf(&b, "\n%12s %12s client %d %s", time.Duration(op.Call), time.Duration(op.Return), op.ClientId, model().DescribeOperation(op.Input, op.Output))
			}
			return b.String()
		}
	}
	return "no single job's history is to blame"
}
