package control

import (
	"strings"
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

// TestStatusOfAControllerThatHasReadNothing: a controller that started alone knows neither jobs nor
// entries, and states none.
func TestStatusOfAControllerThatHasReadNothing(t *testing.T) {
	s := &greylagv1.StatusResponse{CommitIndex: 0, Digest: "0123"}
	if got := indexOf(s) + jobsOf(s) + stateOf(s); strings.ContainsAny(got, "0123456789") || !strings.Contains(got, "not known") {
		t.Errorf("without a leader: %q", got)
	}
	s.Leader = "ctl-1"
	if jobsOf(s) != "0 active, 0 finished" || stateOf(s) != "0123" {
		t.Errorf("of a new cluster: %q %q", jobsOf(s), stateOf(s))
	}
}
