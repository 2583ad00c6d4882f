package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// history returns the whole answer to a request, with the heading of the first message.
func (w *world) history(c *client.Client, r *greylagv1.StreamHistoryRequest) (*greylagv1.StreamHistoryResponse, error) {
	w.t.Helper()
	stream, err := c.History().StreamHistory(w.t.Context(), r)
	must(w.t, err)
	defer stream.Close()
	var whole *greylagv1.StreamHistoryResponse
	for stream.Receive() {
		m := stream.Msg()
		if whole == nil {
			whole = m
			if m.AsOf == nil {
				w.t.Error("the first message does not say what the answer is as of")
			}
			continue
		}
		whole.Jobs = append(whole.Jobs, m.Jobs...)
	}
	return whole, stream.Err()
}

// names returns the names of the jobs, or their IDs where the name is hidden.
func names(jobs []*greylagv1.PastJob) string {
	var words []string
	for _, p := range jobs {
		words = append(words, fmt.Sprintf("%s:%s", p.Job.User, strings.ToLower(wire.Word(p.Job.State))))
	}
	return strings.Join(words, " ")
}

// end cancels a job and waits until the archives have it.
func (w *world) end(c *client.Client, id uint64) {
	w.t.Helper()
	_, err := c.Jobs().CancelJobs(w.t.Context(), &greylagv1.CancelJobsRequest{
		RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{fmt.Sprint(id)}},
	})
	must(w.t, err)
	for _, host := range w.all {
		w.until("the archive", func() bool { _, ok, err := host.store.Job(cluster.JobID(id)); return err == nil && ok })
	}
}

func TestHistoryHasNotesOnRequestForThoseWhoMaySeeThem(t *testing.T) {
	w := newWorld(t, options{})
	c, id := w.as(ann), w.submit(w.as(ann), job("held"))
	filter := &greylagv1.Filter{Jobs: []string{fmt.Sprint(id)}}
	_, err := c.Jobs().UpdateJobs(t.Context(), &greylagv1.UpdateJobsRequest{
		RequestId: client.NewRequestID(), Filter: filter, Action: greylagv1.JobAction_JOB_ACTION_HOLD,
	})
	must(t, err)
	for _, one := range []struct {
		who   *client.Client
		notes bool
		want  string
	}{{c, true, "JobHeldUser"}, {c, false, ""}, {w.as(bob), true, ""}} {
		answer, err := w.history(one.who, &greylagv1.StreamHistoryRequest{Filter: filter, Notes: one.notes})
		must(t, err)
		got := ""
		for _, n := range answer.Jobs[0].Notes {
			got = wire.Word(n.Reason) // the last one
		}
		if got != one.want {
			t.Errorf("notes %v: got %q, want %q", one.notes, got, one.want)
		}
	}
}

func TestHistoryOfAllTimes(t *testing.T) {
	w := newWorld(t, options{})
	c, other := w.as(ann), w.as(bob)
	for range 2 {
		w.end(c, w.submit(c, job("old")))
	}
	w.submit(c, job("waits"))
	w.end(other, w.submit(other, job("his")))
	now := time.Now()
	for what, one := range map[string]struct {
		r    *greylagv1.StreamHistoryRequest
		want string
	}{
		"mine":             {&greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{Mine: true}}, "ann:cancelled ann:cancelled ann:pending"},
		"all":              {&greylagv1.StreamHistoryRequest{}, "ann:cancelled ann:cancelled bob:cancelled ann:pending"},
		"ended":            {&greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_CANCELLED, greylagv1.JobState_JOB_STATE_FAILED}}}, "ann:cancelled ann:cancelled bob:cancelled"},
		"waiting":          {&greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_PENDING}}}, "ann:pending"},
		"waiting then":     {&greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_PENDING}}, StatesInInterval: true, Since: timestamppb.New(now.Add(-time.Hour))}, "ann:cancelled ann:cancelled bob:cancelled ann:pending"},
		"named":            {&greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{Jobs: []string{"3", "1", "999"}}}, "ann:cancelled ann:pending"},
		"by name":          {&greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{Names: []string{"old"}, Mine: true}}, "ann:cancelled ann:cancelled"},
		"two users":        {&greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{Users: []string{"bob", "carol"}}}, "bob:cancelled"},
		"before all":       {&greylagv1.StreamHistoryRequest{Until: timestamppb.New(now.Add(-time.Hour))}, ""},
		"after all":        {&greylagv1.StreamHistoryRequest{Since: timestamppb.New(now.Add(time.Hour))}, "ann:pending"},
		"ended after that": {&greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_CANCELLED}}, Since: timestamppb.New(now.Add(time.Hour))}, ""},
	} {
		answer, err := w.history(c, one.r)
		must(t, err)
		if got := names(answer.Jobs); got != one.want || answer.Finished != 3 {
			t.Errorf("%s: %q, %d finished; want %q", what, got, answer.Finished, one.want)
		}
	}
	_, err := w.history(c, &greylagv1.StreamHistoryRequest{Since: timestamppb.New(now), Until: timestamppb.New(now.Add(-time.Second))})
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("an interval that ends before it begins: %v", err)
	}
}

func TestHistoryShowsOfOthersWhatThePolicySays(t *testing.T) {
	secret := job("secret-name")
	secret.Comment, secret.Account = "secret-comment", ""
	for _, private := range []bool{false, true} {
		t.Run(fmt.Sprint("private=", private), func(t *testing.T) {
			w := newWorld(t, options{policy: func(p *cluster.Policy) { p.Private = private }})
			id := w.submit(w.as(bob), secret)
			w.end(w.as(bob), id)
			w.end(w.as(ann), w.submit(w.as(ann), job("own")))
			named := &greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{Jobs: []string{fmt.Sprint(id)}}}
			his := &greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{Users: []string{"bob"}}}
			for _, r := range []*greylagv1.StreamHistoryRequest{named, his} {
				answer, err := w.history(w.as(ann), r)
				must(t, err)
				if want := map[bool]int{false: 1, true: 0}[private]; len(answer.Jobs) != want {
					t.Fatalf("ann sees %d of bob's jobs, want %d", len(answer.Jobs), want)
				}
				for _, j := range answer.Jobs {
					if text := j.String(); strings.Contains(text, "secret") || j.Job.WorkDir != "" || j.Job.User != "bob" {
						t.Fatalf("ann sees %s", text)
					}
				}
				if answer, err = w.history(w.as(olga), r); err != nil || len(answer.Jobs) != 1 || answer.Jobs[0].Job.Name != "secret-name" {
					t.Fatalf("the operator sees %v, %v", answer, err)
				}
			}
			answer, err := w.history(w.as(ann), &greylagv1.StreamHistoryRequest{})
			must(t, err)
			if want := map[bool]string{false: "bob:cancelled ann:cancelled", true: "ann:cancelled"}[private]; names(answer.Jobs) != want {
				t.Fatalf("ann sees %q, want %q", names(answer.Jobs), want)
			}
		})
	}
}

func TestHistoryIsAnsweredByAnyController(t *testing.T) {
	w := newWorld(t, options{controllers: 3})
	c := w.as(ann)
	for range 5 {
		w.end(c, w.submit(c, job("old")))
	}
	var whole []string
	for _, host := range w.all {
		answer, err := w.history(w.as(ann, host), &greylagv1.StreamHistoryRequest{})
		must(t, err)
		if answer.AsOf.Controller != host.log.Status().ID || answer.Finished != 5 {
			t.Errorf("controller %s answered as %s, with %d finished", host.log.Status().ID, answer.AsOf.Controller, answer.Finished)
		}
		text := ""
		for _, j := range answer.Jobs {
			text += fmt.Sprintln(j.Job.Ref, j.Job.Ended.AsTime(), j.Job.Version)
		}
		whole = append(whole, text)
	}
	if len(slices.Compact(whole)) != 1 {
		t.Errorf("the controllers differ: %q", whole)
	}
}

// TestHistoryEndsWithItsReader cancels a call in the middle of an answer that is longer than the
// buffers between server and reader: its stream is released.
func TestHistoryEndsWithItsReader(t *testing.T) {
	o := options{}
	o.limits.Streams = 1
	w := newWorld(t, o)
	c := w.as(ann)
	long := job("long")
	long.Comment, long.Array = strings.Repeat("x", 250), "0-19999"
	w.submit(c, long)
	ctx, leave := context.WithCancel(t.Context())
	stream, err := c.History().StreamHistory(ctx, &greylagv1.StreamHistoryRequest{})
	must(t, err)
	began, goesOn := stream.Receive(), stream.Receive()
	if !began || !goesOn || len(stream.Msg().Jobs) == 0 {
		t.Fatalf("no jobs came: %v", stream.Err())
	}
	second := func() bool { // whether another stream is allowed; the client would retry for long
		limited, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer stop()
		other, err := w.as(ann).History().StreamHistory(limited, &greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{Jobs: []string{"1"}}})
		if err != nil {
			return false
		}
		defer other.Close()
		return other.Receive()
	}
	if second() {
		t.Fatal("a second stream is allowed while one is open: the server read the first to its end without a reader")
	}
	leave()
	stream.Close()
	w.until("the stream to end", second)
}
