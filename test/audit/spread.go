package audit

import (
	"context"
	"math/rand/v2"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// Spread submits through all controllers in turn, whether they lead or not, and gives up on a
// silent one soon. Unlike the commands' client, which stays with one controller, it keeps every
// controller under load during every fault.
type Spread struct{ Cluster *cluster.Cluster }

// patience is the time limit for one controller.
const patience = 300 * time.Millisecond

// SubmitJobs sends the same request to one controller after another until one
// answers it or ctx ends.
func (s Spread) SubmitJobs(ctx context.Context, request *greylagv1.SubmitJobsRequest) (*greylagv1.SubmitJobsResponse, error) {
	controllers := s.Cluster.Controllers()
	for {
		ctl := controllers[rand.IntN(len(controllers))]
		once, cancel := context.WithTimeout(ctx, patience)
		answer, err := ctl.Jobs().SubmitJobs(once, request)
		cancel()
		if err == nil || ctx.Err() != nil {
			return answer, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond): // one that is down refuses at once
		}
	}
}
