package gctl

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
)

// TestRunningJobShowsItsLatestEnd checks the time left, and the real output path in JSON.
func TestRunningJobShowsItsLatestEnd(t *testing.T) {
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	j := &greylagv1.Job{
		Id: 42, ArrayId: 40, ArrayIndex: 2, Attempt: 1, State: greylagv1.JobState_JOB_STATE_RUNNING, Output: "log-%A_%a.out",
		Started: timestamppb.New(now.Add(-20 * time.Minute)), TimeLimit: durationpb.New(time.Hour),
	}
	facts := limitFacts(j, now)
	if len(facts) != 2 || facts[0][1] != now.Add(40*time.Minute).Format(ui.TimeLayout) || facts[1][1] != "0:40:00" && facts[1][1] != "00:40:00" && facts[1][1] != "40:00" {
		t.Errorf("%q", facts)
	}
	if got := ui.JobOf(j).Output; got != "log-40_2.out" {
		t.Errorf("JSON output %q", got)
	}
	j.State = greylagv1.JobState_JOB_STATE_PENDING
	if got := limitFacts(j, now); got != nil {
		t.Errorf("a pending job: %q", got)
	}
}

// TestUnfencedFact: only the next attempt of a job waits for proof, a running one does not.
func TestUnfencedFact(t *testing.T) {
	for state, want := range map[greylagv1.JobState]string{
		greylagv1.JobState_JOB_STATE_RUNNING: "lost nodes: n[4-5] (not fenced: the task may still be running); the job continues without them",
		greylagv1.JobState_JOB_STATE_PENDING: "waits for: proof that its last attempt does not run on n[4-5]",
	} {
		fact := unfencedFact(&greylagv1.Job{State: state, UnfencedNodes: []string{"n4", "n5"}})
		if got := fact[0] + ": " + fact[1]; got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}
