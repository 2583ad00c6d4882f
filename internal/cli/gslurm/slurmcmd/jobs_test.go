package slurmcmd

import (
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestFoldKeepsElementsOfAFoldedListing checks that a job that stands for several elements is listed with
// all of them.
func TestFoldKeepsElementsOfAFoldedListing(t *testing.T) {
	pending := greylagv1.JobState_JOB_STATE_PENDING
	rows := Fold([]*greylagv1.Job{
		{Id: 10, Ref: "10_2", ArrayId: 10, ArrayIndex: 2, Also: 3, State: pending}, {Id: 15, Ref: "10_7", ArrayId: 10, ArrayIndex: 7, State: pending},
	}, false)
	if len(rows) != 1 || rows[0].ID() != "10_[2-5,7]" {
		t.Errorf("%d rows, the first of %s", len(rows), rows[0].ID())
	}
}
