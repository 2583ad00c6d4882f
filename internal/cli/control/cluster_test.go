package control

import (
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestDoorOf: the argument of gctl join names a controller also while they elect a leader.
func TestDoorOf(t *testing.T) {
	status := &greylagv1.StatusResponse{Members: []*greylagv1.Member{{Address: "new:7117"}, {Address: "ctl2:7117", Voter: true}, {Address: "ctl3:7117", Voter: true}}}
	if got := doorOf(status); got != "ctl2:7117" {
		t.Errorf("without a leader: %s", got)
	}
	if status.LeaderAddress = "ctl3:7117"; doorOf(status) != "ctl3:7117" {
		t.Errorf("with a leader: %s", doorOf(status))
	}
}
