package setup

import (
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestJoinAddress checks that the argument of gctl join names a controller during an election, too.
func TestJoinAddress(t *testing.T) {
	status := &greylagv1.GetStatusResponse{Members: []*greylagv1.Member{{Address: "new:7117"}, {Address: "ctl2:7117", Voter: true}, {Address: "ctl3:7117", Voter: true}}}
	if got := joinAddress(status); got != "ctl2:7117" {
		t.Errorf("without a leader: %s", got)
	}
	if status.LeaderAddress = "ctl3:7117"; joinAddress(status) != "ctl3:7117" {
		t.Errorf("with a leader: %s", joinAddress(status))
	}
}
