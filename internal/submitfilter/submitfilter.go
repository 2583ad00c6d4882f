// Package submitfilter runs a program of the site that may refuse or change a job before it is
// proposed.
//
// It decides how the program is started and limited, what it reads, and how its answer changes a job.
// It never decides whether a job is valid or allowed: the checks of a submission follow, on the changed
// job.
package submitfilter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/runas"
)

// maxRuns is the number of programs that run at once on a controller, and maxRunsOfUser that for the jobs
// of one user, who could otherwise keep out all others.
const maxRuns, maxRunsOfUser = 8, 4

// Config is the configuration of a filter.
type Config struct {
	Program  string        // absolute path
	User     string        // name or uid that it runs as
	Deadline time.Duration // of one run
	Logger   *slog.Logger
}

// Filter runs the program for jobs. Use New. Safe for concurrent use.
type Filter struct {
	cfg    Config
	runs   chan struct{} // a slot for each run
	ofUser sync.Map      // the same for each user: chan struct{} by name
}

// New returns a filter.
func New(cfg Config) *Filter {
	runas.DropAmbient(cfg.Logger)
	return &Filter{cfg: cfg, runs: make(chan struct{}, maxRuns)}
}

// Caller is the user who submits, as the program sees them.
type Caller struct {
	User     string `json:"user"`
	UID      uint32 `json:"uid"`
	GID      uint32 `json:"gid"`
	Source   string `json:"source"`    // address that the call came from
	TestOnly bool   `json:"test_only"` // no job is submitted
}

// Answer is a job that the program accepted.
type Answer struct {
	Job     *greylagv1.JobSpec
	Changes []string // such as "partition: gpu → batch"
	Message string   // for the user; "" for none
}

// hintFailed is the hint of a refusal caused by a failure of the program.
const hintFailed = "report this to the administrators; the log of the controller has details"

// Apply runs the program for one job and returns the job as the program changed it. An error
// is a refusal or that of ctx. spec does not change.
func (f *Filter) Apply(ctx context.Context, caller Caller, spec *greylagv1.JobSpec) (Answer, error) {
	if spec == nil {
		spec = &greylagv1.JobSpec{}
	}
	input, err := request(caller, spec)
	if err != nil {
		return Answer{}, f.failed(caller, err, "")
	}
	full := time.NewTimer(f.cfg.Deadline)
	defer full.Stop()
	own, _ := f.ofUser.LoadOrStore(caller.User, make(chan struct{}, maxRunsOfUser))
	for _, places := range []chan struct{}{own.(chan struct{}), f.runs} {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		case <-full.C:
			return Answer{}, &busyError{command.WithHint(command.Refusef(command.Exhausted, "the submission filter of this site is busy: %d runs, %d for one user, are the limits", maxRuns, maxRunsOfUser), "submit again in a few seconds")}
		}
	}
	output, stderr, err := f.run(ctx, input)
	if ctx.Err() != nil {
		return Answer{}, ctx.Err()
	}
	if err != nil {
		return Answer{}, f.failed(caller, err, stderr)
	}
	r, err := readReply(output)
	if err != nil {
		return Answer{}, f.failed(caller, err, stderr)
	}
	if r.Refuse != "" {
		return Answer{}, command.Refusef(command.Denied, "refused by the submission filter of this site: %s", command.Sanitize(r.Refuse))
	}
	answer := Answer{Job: proto.CloneOf(spec), Message: command.Sanitize(r.Message)}
	if answer.Changes, err = apply(answer.Job, r.Job); err != nil {
		return Answer{}, f.failed(caller, err, stderr)
	}
	return answer, nil
}

// ErrBusy is wrapped by the refusal of a job for which the program could not be run in time.
var ErrBusy = errors.New("the submission filter is busy")

// busyError is that refusal.
type busyError struct{ refusal *command.Refusal }

func (e *busyError) Error() string   { return e.refusal.Error() }
func (e *busyError) Unwrap() []error { return []error{ErrBusy, e.refusal} }

// failed logs a failure of the program and returns the refusal of the job.
func (f *Filter) failed(caller Caller, err error, stderr string) error {
	f.cfg.Logger.Error("the submission filter failed; the job is refused", "program", f.cfg.Program, "user", caller.User, "err", err, "stderr", stderr)
	return command.WithHint(command.Refusef(command.Internal, "the submission filter of this site failed: %s", command.Sanitize(err.Error())), hintFailed)
}
