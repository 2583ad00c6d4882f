package burstsim

import (
	"os"
	"strconv"
	"testing"
)

// TestSeeds makes a dozen runs, or as many as GREYLAG_BURST_SEEDS says.
func TestSeeds(t *testing.T) {
	t.Parallel()
	seeds := 12
	if text := os.Getenv("GREYLAG_BURST_SEEDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		seeds = n
	}
	var sum Result
	for seed := range uint64(seeds) {
		r, err := Run(seed + 1)
		if err != nil {
			t.Fatal(err)
		}
		sum.Instances += r.Instances
		sum.OnCloud += r.OnCloud
		sum.Reclaims += r.Reclaims
		sum.NeverJoined += r.NeverJoined
		sum.LostAnswers += r.LostAnswers
		sum.Elections += r.Elections
		sum.Refused += r.Refused
		sum.Waves += r.Waves
		sum.Resumed += r.Resumed
		sum.Joins += r.Joins
		sum.WentOn += r.WentOn
		sum.Shares += r.Shares
	}
	t.Logf("%+v", sum)
	if sum.OnCloud == 0 || sum.Reclaims == 0 || sum.NeverJoined == 0 || sum.LostAnswers == 0 || sum.Elections == 0 || sum.Refused == 0 ||
		sum.Waves == 0 || sum.Resumed == 0 || sum.Joins == 0 || sum.WentOn == 0 || sum.Shares == 0 {
		t.Errorf("a kind of event never happened: %+v", sum)
	}
}

// TestPromisesStayOnTheSite runs a seed in which a promise, whose nodes an elastic job holds for longer, could be kept later on a
// leased node, but only until another job takes that.
func TestPromisesStayOnTheSite(t *testing.T) {
	t.Parallel()
	if _, err := Run(288); err != nil {
		t.Error(err)
	}
}
