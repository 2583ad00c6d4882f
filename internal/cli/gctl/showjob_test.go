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
