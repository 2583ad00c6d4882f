package jobmail

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// all is every event.
const all = cluster.MailTypes(1<<9 - 1)

func at(minutes int) cluster.Instant {
	return cluster.Instant(time.Duration(minutes) * time.Minute)
}

// shown lists events as minute, type and outcome.
func shown(list []Event) string {
	var words []string
	for _, e := range list {
		words = append(words, strings.TrimSuffix(fmt.Sprintf("%d %s %s", e.At/at(1), e.Type, e.Outcome), " "+cluster.JobState(0).String()))
	}
	return strings.Join(words, "; ")
}

func TestEvents(t *testing.T) {
	spec := func(types cluster.MailTypes) *cluster.JobSpec {
		return &cluster.JobSpec{MailTypes: types, TimeLimit: 100 * time.Minute}
	}
	timedOut := &cluster.Job{Spec: spec(all), State: cluster.TimedOut, Started: at(10), Ended: at(110), Attempt: 1}
	inactive := &cluster.Job{Spec: spec(all &^ (cluster.MailTimeLimit50 | cluster.MailTimeLimit80 | cluster.MailTimeLimit90)), State: cluster.TimedOut, Reason: cluster.ReasonInactiveLimit, Started: at(10), Ended: at(60), Attempt: 1}
	again := &cluster.Job{Spec: spec(all), State: cluster.Running, Started: at(70), Attempt: 2,
		Attempts: []cluster.AttemptRecord{{Attempt: 1, Started: at(5), Ended: at(60), Outcome: cluster.NodeFailed}}}
	failed := func(types cluster.MailTypes) *cluster.Job {
		return &cluster.Job{Spec: spec(types), State: cluster.Failed, Started: at(1), Ended: at(2)}
	}
	for _, x := range []struct {
		what     string
		job      *cluster.Job
		from, to int
		want     string
	}{
		{"a job that reached its limit", timedOut, 0, 200, "10 BEGIN; 60 TIME_LIMIT_50; 90 TIME_LIMIT_80; 100 TIME_LIMIT_90; 110 TIME_LIMIT TIMEOUT; 110 FAIL TIMEOUT"},
		{"an inactive job", inactive, 10, 200, "60 FAIL TIMEOUT"},
		{"a part of its time", timedOut, 60, 100, "90 TIME_LIMIT_80; 100 TIME_LIMIT_90"},
		{"a second attempt", again, 0, 120, "5 BEGIN; 55 TIME_LIMIT_50; 60 REQUEUE NODE_FAIL; 70 BEGIN; 120 TIME_LIMIT_50"},
		{"a failure as an end", failed(cluster.MailEnd), 0, 9, "2 END FAILED"},
		{"a failure as such", failed(cluster.MailEnd | cluster.MailFail), 0, 9, "2 FAIL FAILED"},
		{"no failure", failed(cluster.MailBegin), 1, 9, ""},
		{"a job that is cancelled", &cluster.Job{Spec: spec(all), State: cluster.Cancelled, Ended: at(3)}, 0, 9, "3 END CANCELLED"},
		{"a job that completes", &cluster.Job{Spec: spec(all), State: cluster.Completing, Outcome: cluster.Completed, Started: at(1), Ended: at(3)}, 1, 9, "3 END COMPLETED"},
		{"a job that will run again", &cluster.Job{Spec: spec(all), State: cluster.Completing, Outcome: cluster.Preempted, Returns: true, Started: at(1), Ended: at(3)}, 1, 9, "3 REQUEUE PREEMPTED"},
		{"an impossible dependency", &cluster.Job{Spec: spec(all), State: cluster.Pending, History: []cluster.Note{{At: at(4), Reason: cluster.ReasonDependencyNeverSatisfied}}}, 0, 9, "4 INVALID_DEPEND"},
		{"a warning", &cluster.Job{Spec: spec(all | cluster.MailWarning), State: cluster.Running, Started: at(1), Activity: &cluster.Activity{Warns: cluster.WarnedInactive, NoticedAt: at(31)}}, 1, 40, "31 WARNING"},
		{"a warning that is over", &cluster.Job{Spec: spec(all | cluster.MailWarning), State: cluster.Running, Started: at(1), Activity: &cluster.Activity{NoticedAt: at(31)}}, 1, 40, ""},
	} {
		if got := shown(Of(x.job, at(x.from), at(x.to))); got != x.want {
			t.Errorf("%s: %s\nwant %s", x.what, got, x.want)
		}
	}
}

func TestTexts(t *testing.T) {
	for _, types := range all.Each() {
		if text := (Event{Type: types, Attempt: 1, Outcome: cluster.TimedOut}).Text("job 7"); text == "job 7" || !strings.HasPrefix(text, "job 7 ") {
			t.Errorf("%s: %q", types, text)
		}
	}
}

// TestEndingText checks that a mail names the exit status or the signal, the run time and the nodes of a failed job.
func TestEndingText(t *testing.T) {
	for _, x := range []struct {
		exit           cluster.Exit
		text, sentence string
	}{
		{cluster.Exit{Code: 3}, "job 42 (f3) failed: FAILED, exit status 3, run time 5:00 on n[1-2]", "Attempt 1 ran for 5:00 on n[1-2], and ended with exit status 3.\n"},
		{cluster.Exit{Signal: 11}, "job 42 (f3) failed: FAILED, signal 11 (SEGV), run time 5:00 on n[1-2]", "Attempt 1 ran for 5:00 on n[1-2], and ended with signal 11 (SEGV).\n"},
	} {
		j := &cluster.Job{
			Spec: &cluster.JobSpec{MailTypes: cluster.MailFail, TimeLimit: time.Hour, Owner: cluster.Identity{User: "ada"}}, State: cluster.Failed, Attempt: 1, Started: at(1), Ended: at(6),
			Exit: x.exit, Alloc: &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1"}, {Node: "n2"}}},
		}
		e := Of(j, at(1), at(10))[0]
		if got := e.Text("job 42 (f3)"); got != x.text {
			t.Errorf("%s\nwant %s", got, x.text)
		}
		want := x.sentence + "The time limit of an attempt is 1:00:00.\nUser: ada. Time: 1970-01-01T00:06:00Z.\nDetails: gctl show job 42. Output: gctl logs 42."
		if got := e.Sentences(j.Spec, "42"); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// TestWarningText checks what a user reads about idle GPUs, with their cost until then.
func TestWarningText(t *testing.T) {
	j := &cluster.Job{
		Spec: &cluster.JobSpec{MailTypes: cluster.MailWarning}, State: cluster.Running, Started: at(1),
		Alloc:    &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1", GPUs: []int32{0, 1, 2, 3}}}},
		Activity: &cluster.Activity{Warns: cluster.WarnedIdle, NoticedAt: at(90), Idle: cluster.IdleGPUs{GPUs: 2, At: at(90), Ms: 3_600_000, Price: 2_000_000}},
	}
	events := Of(j, at(60), at(120))
	if len(events) != 1 {
		t.Fatalf("%d events", len(events))
	}
	const want = "job 7 has a warning: idle GPUs: 2 of 4; idle so far: 2.0 GPU-hours, 4.00 credits"
	if got := events[0].Text("job 7"); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
