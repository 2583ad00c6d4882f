package auth

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/pkg/cluster"
)

// AttemptHeader is the header of calls that a node forwards for the commands inside a job. Its value
// is Attempt.String. It is accepted only with the certificate of a node.
const AttemptHeader = "Greylag-Attempt"

// ErrAttemptEnded marks a call for an attempt that is no longer running.
var ErrAttemptEnded = errors.New("its identity is no longer valid")

// Attempt is one run of a job, as the identity of the commands inside it.
type Attempt struct {
	Job    cluster.JobID
	Number cluster.Attempt
}

// String returns JOB.ATTEMPT, such as "12.1".
func (a Attempt) String() string { return fmt.Sprintf("%d.%d", a.Job, a.Number) }

// ParseAttempt reads exactly the form of String.
func ParseAttempt(text string) (Attempt, error) {
	job, number, _ := strings.Cut(text, ".")
	j, errJob := strconv.ParseUint(job, 10, 64)
	n, errNumber := strconv.ParseUint(number, 10, 32)
	a := Attempt{cluster.JobID(j), cluster.Attempt(n)}
	if errJob != nil || errNumber != nil || a.String() != text {
		return Attempt{}, fmt.Errorf("%w: %.40q is not JOB.ATTEMPT", ErrDenied, text)
	}
	return a, nil
}

// OwnerOf returns the user in whose name a node forwards a call for attempt a of job j, which is
// nil if the cluster does not have the job. The attempt must be running on that node: otherwise the
// error wraps ErrAttemptEnded, or ErrDenied if it never ran there.
func (a Attempt) OwnerOf(j *cluster.Job, node string) (Identity, error) {
	ended := hint.New(
		fmt.Errorf("attempt %d of job %d has ended; %w", a.Number, a.Job, ErrAttemptEnded),
		"run the command on a login node",
	)
	switch {
	case j == nil, j.Attempt > a.Number, j.Attempt == a.Number && !runs(j.State):
		return Identity{}, ended
	case j.Attempt < a.Number:
		return Identity{}, fmt.Errorf("%w: job %d has had %d attempts, not %d", ErrDenied, a.Job, j.Attempt, a.Number)
	case j.Alloc == nil:
		return Identity{}, ended
	}
	rank := slices.IndexFunc(j.Alloc.Nodes, func(n cluster.NodeAllocation) bool { return n.Node == node })
	switch {
	case rank < 0:
		return Identity{}, fmt.Errorf("%w: attempt %d of job %d does not run on node %s", ErrDenied, a.Number, a.Job, node)
	case rank < j.Tasks.Len() && j.Tasks.At(rank).Phase >= cluster.TaskEnded:
		return Identity{}, ended
	}
	return Identity{Identity: j.Spec.Owner, Host: node + ", in job " + a.String()}, nil
}

// runs reports whether an attempt of a job in this state may have processes.
func runs(s cluster.JobState) bool {
	return s != cluster.Pending && !s.Final()
}
