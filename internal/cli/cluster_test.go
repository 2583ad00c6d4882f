package cli_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/wire"
)

// memory is a cluster that holds the data of a page and answers as a controller does. It stands in
// for one where a page needs jobs in every state at known times, which no cluster has on demand;
// test/e2e runs the programs on real ones.
type memory struct {
	greylagv1connect.UnimplementedJobServiceHandler
	mu     sync.Mutex
	jobs   []*greylagv1.Job
	next   uint64
	asked  proto.Message // the last requested change
	bodies map[uint64][]byte
	pages  []*greylagv1.ListJobsResponse // the answer of Stream, if set
	broke  bool                          // the output stream that breaks off once
	cron   []*greylagv1.CronEntry        // recurring jobs
	secret []*greylagv1.Secret
}

// breaksOnce is the rank whose output breaks off every other time, as when a node's daemon is
// killed; breaksKnown does the same, and reports the position.
const breaksOnce, breaksKnown = 2, 3

// caller is the identity of the token's bearer.
const caller = "alice"

func (m *memory) note(request proto.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = proto.Clone(request)
}

func refuse(code connect.Code, hint, format string, args ...any) error {
	err := connect.NewError(code, fmt.Errorf(format, args...))
	err.Meta().Set("Greylag-Hint", hint)
	return err
}

// SubmitJobs implements JobServiceHandler.
func (m *memory) SubmitJobs(_ context.Context, r *greylagv1.SubmitJobsRequest) (*greylagv1.SubmitJobsResponse, error) {
	m.note(r)
	if r.RequestId == "" || len(r.Jobs) != 1 {
		return nil, refuse(connect.CodeInvalidArgument, "", "no request id, or not one job")
	}
	s := r.Jobs[0]
	switch {
	case s.Request.GpusPerNode > 8:
		return nil, refuse(connect.CodeInvalidArgument, "request at most 8 with --gpus-per-node, or more nodes with --nodes",
			"no node of partition %q has %d GPUs (the largest has 8)", "main", s.Request.GpusPerNode)
	case s.Account == "physics":
		return nil, refuse(connect.CodePermissionDenied, "", "you may not use account %q", s.Account)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	first, size := m.next+1, 1
	if low, high, ok := strings.Cut(s.Array, "-"); ok {
		from, _ := strconv.Atoi(low)
		to, _ := strconv.Atoi(high)
		size = to - from + 1
	}
	for i := range size {
		m.next++
		j := &greylagv1.Job{Id: m.next, Ref: fmt.Sprint(m.next), Name: s.Name, User: caller, Partition: "main", State: greylagv1.JobState_JOB_STATE_PENDING, Reason: greylagv1.Reason_REASON_PRIORITY}
		if s.Array != "" {
			j.ArrayId, j.ArrayIndex, j.Ref = first, int32(i), fmt.Sprintf("%d_%d", first, i)
		}
		m.jobs = append(m.jobs, j)
		m.bodies[j.Id] = s.Script
	}
	answer := &greylagv1.SubmitJobsResponse{Jobs: []*greylagv1.Submitted{{Id: first}}, Index: 7}
	if s.Array != "" {
		answer.Jobs[0].ArraySize = int32(size)
	}
	if s.Comment != "" {
		answer.Warnings = []string{"the comment \x1b[31m" + s.Comment + " is visible to all users"}
	}
	return answer, nil
}

func chosen(f *greylagv1.Filter, j *greylagv1.Job) bool {
	among := func(list []string, word string) bool { return len(list) == 0 || slices.Contains(list, word) }
	active := slices.Contains([]string{"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}, wire.Word(j.State))
	onNode := len(f.GetNodes()) == 0
	for _, n := range j.Nodes {
		onNode = onNode || slices.Contains(f.GetNodes(), n.Node)
	}
	state := f.GetAllStates() || slices.Contains(f.GetStates(), j.State) || len(f.GetStates()) == 0 && active
	return onNode && state && (!f.GetMine() || j.User == caller) && among(f.GetUsers(), j.User) && among(f.GetNames(), j.Name) &&
		among(f.GetPartitions(), j.Partition) && among(f.GetAccounts(), j.Account) && among(f.GetQos(), j.Qos) && named(f.GetJobs(), j)
}

func named(refs []string, j *greylagv1.Job) bool {
	return len(refs) == 0 || slices.Contains(refs, j.Ref) || slices.Contains(refs, fmt.Sprint(j.Id)) || j.ArrayId != 0 && slices.Contains(refs, fmt.Sprint(j.ArrayId))
}

func (m *memory) find(f *greylagv1.Filter) []*greylagv1.Job {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*greylagv1.Job
	for _, j := range m.jobs {
		if chosen(f, j) {
			all = append(all, proto.CloneOf(j))
		}
	}
	return all
}

// ListJobs implements JobServiceHandler.
func (m *memory) ListJobs(_ context.Context, r *greylagv1.ListJobsRequest) (*greylagv1.ListJobsResponse, error) {
	return &greylagv1.ListJobsResponse{Jobs: m.find(r.Filter)}, nil
}

// StreamJobs implements JobServiceHandler, two jobs a page.
func (m *memory) StreamJobs(_ context.Context, r *greylagv1.ListJobsRequest, s *connect.ServerStream[greylagv1.ListJobsResponse]) error {
	for _, page := range m.pages {
		if err := s.Send(page); err != nil {
			return err
		}
	}
	asOf := &greylagv1.AsOf{Index: 7, Time: timestamppb.New(time.Date(2026, 11, 21, 11, 58, 30, 0, time.UTC)), Controller: "ctl-2", Stale: r.Read.GetStale()}
	for part := range slices.Chunk(m.find(r.Filter), 2) {
		if err := s.Send(&greylagv1.ListJobsResponse{Jobs: part, AsOf: asOf}); err != nil {
			return err
		}
		asOf = nil // only the first message has it
	}
	return nil
}

// GetJob implements JobServiceHandler.
func (m *memory) GetJob(_ context.Context, r *greylagv1.GetJobRequest) (*greylagv1.GetJobResponse, error) {
	if strings.HasPrefix(r.Job, "77") { // while there is no leader
		return nil, connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("no report of job %s", r.Job))
	}
	found := m.find(&greylagv1.Filter{Jobs: []string{r.Job}, AllStates: true})
	if len(found) == 0 {
		return nil, refuse(connect.CodeNotFound, "gqueue lists the jobs", "no job %s", r.Job)
	}
	return &greylagv1.GetJobResponse{Jobs: found}, nil
}

// WatchJobs implements JobServiceHandler: every job runs at once and ends as its name says: exit-3,
// signal-9, cancelled, unseen, vain (its dependency is never satisfied); others succeed.
func (m *memory) WatchJobs(_ context.Context, r *greylagv1.WatchJobsRequest, s *connect.ServerStream[greylagv1.WatchJobsResponse]) error {
	jobs := m.find(r.Filter)
	if err := s.Send(&greylagv1.WatchJobsResponse{Jobs: jobs, CaughtUp: true}); err != nil || !r.UntilEnded {
		return err
	}
	var shown []*greylagv1.Job
	for _, j := range jobs {
		kind, number, _ := strings.Cut(j.Name, "-")
		n, _ := strconv.Atoi(number)
		if kind == "vain" {
			waits := proto.CloneOf(j)
			waits.Reason, waits.Detail = greylagv1.Reason_REASON_DEPENDENCY_NEVER_SATISFIED, "dependency afterok:7 can never be satisfied"
			if err := s.Send(&greylagv1.WatchJobsResponse{Jobs: []*greylagv1.Job{waits, waits}}); err != nil {
				return err
			}
		}
		j.State = greylagv1.JobState_JOB_STATE_COMPLETED
		switch kind {
		case "exit":
			j.State, j.ExitCode, j.Reason = greylagv1.JobState_JOB_STATE_FAILED, int32(n), greylagv1.Reason_REASON_NON_ZERO_EXIT_CODE
		case "signal":
			j.State, j.ExitSignal, j.Reason = greylagv1.JobState_JOB_STATE_FAILED, int32(n), greylagv1.Reason_REASON_NON_ZERO_EXIT_CODE
		case "cancelled":
			j.State, j.Reason, j.Detail = greylagv1.JobState_JOB_STATE_CANCELLED, greylagv1.Reason_REASON_CANCELLED, "by root"
		case "unseen":
			j.State, j.Reason, j.Detail = greylagv1.JobState_JOB_STATE_OUT_OF_MEMORY, greylagv1.Reason_REASON_OUT_OF_MEMORY, "at 64M"
		}
		if kind != "unseen" { // its end is not shown
			shown = append(shown, j)
		}
		m.ended(j)
	}
	return s.Send(&greylagv1.WatchJobsResponse{Jobs: shown})
}

// ended records the end of a watched job.
func (m *memory) ended(j *greylagv1.Job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, known := range m.jobs {
		if known.Id == j.Id {
			m.jobs[i] = j
		}
	}
}

// CancelJobs implements JobServiceHandler.
func (m *memory) CancelJobs(_ context.Context, r *greylagv1.CancelJobsRequest) (*greylagv1.CancelJobsResponse, error) {
	m.note(r)
	return &greylagv1.CancelJobsResponse{Outcomes: m.outcomes(r.Filter, "CANCELLED")}, nil
}

// SignalStep implements JobServiceHandler.
func (m *memory) SignalStep(_ context.Context, r *greylagv1.SignalStepRequest) (*greylagv1.SignalStepResponse, error) {
	m.note(r)
	for _, j := range m.find(&greylagv1.Filter{Jobs: []string{fmt.Sprint(r.Job)}, AllStates: true}) {
		for _, s := range j.Steps {
			if s.Id == r.Step {
				return &greylagv1.SignalStepResponse{}, nil
			}
		}
	}
	return nil, refuse(connect.CodeNotFound, "", "no step %d.%d", r.Job, r.Step)
}

// UpdateJobs implements JobServiceHandler.
func (m *memory) UpdateJobs(_ context.Context, r *greylagv1.UpdateJobsRequest) (*greylagv1.UpdateJobsResponse, error) {
	m.note(r)
	list := m.outcomes(r.Filter, "PENDING")
	for _, o := range list {
		if r.Action == greylagv1.JobAction_JOB_ACTION_SET_ADMIN_COMMENT && o.Code == greylagv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION {
			o.Error, o.Code = "", 0
		}
	}
	return &greylagv1.UpdateJobsResponse{Outcomes: list}, nil
}

func (m *memory) outcomes(f *greylagv1.Filter, state string) []*greylagv1.Outcome {
	all := proto.CloneOf(f)
	if !f.AllStates && len(f.States) == 0 && len(f.Jobs) > 0 {
		all.AllStates = true
	}
	var out []*greylagv1.Outcome
	for _, j := range m.find(all) {
		o := &greylagv1.Outcome{Id: j.Id, Ref: j.Ref, State: wire.Enum[greylagv1.JobState](state)}
		switch {
		case j.User != caller:
			o.Error, o.Code, o.State = "it is not yours", greylagv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED, j.State
		case !chosen(&greylagv1.Filter{}, j):
			o.Error, o.Code, o.State = "it has ended already", greylagv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION, j.State
		}
		out = append(out, o)
	}
	for _, ref := range f.Jobs {
		if len(m.find(&greylagv1.Filter{Jobs: []string{ref}, AllStates: true})) == 0 {
			out = append(out, &greylagv1.Outcome{Ref: ref, Error: "no such job", Code: greylagv1.ErrorCode_ERROR_CODE_NOT_FOUND})
		}
	}
	return out
}

// GetScript implements JobServiceHandler.
func (m *memory) GetScript(_ context.Context, r *greylagv1.GetScriptRequest) (*greylagv1.GetScriptResponse, error) {
	id, err := strconv.ParseUint(r.Job, 10, 64)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || m.bodies[id] == nil {
		return nil, refuse(connect.CodeNotFound, "gqueue lists the jobs", "no job %s", r.Job)
	}
	return &greylagv1.GetScriptResponse{Script: m.bodies[id]}, nil
}

// StreamLogs implements JobServiceHandler.
func (m *memory) StreamLogs(_ context.Context, r *greylagv1.StreamLogsRequest, s *connect.ServerStream[greylagv1.StreamLogsResponse]) error {
	for _, j := range m.find(&greylagv1.Filter{Jobs: []string{r.Job}, States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_PENDING}}) {
		return refuse(connect.CodeFailedPrecondition, "gctl logs -f waits for its start", "job %s has no output yet: it has not started", j.Ref)
	}
	m.mu.Lock()
	breaks := (r.Rank == breaksOnce || r.Rank == breaksKnown) && !m.broke
	m.broke = breaks
	m.mu.Unlock()
	next := int64(0) // unknown
	if r.Rank == breaksKnown {
		next = 4096
	}
	if breaks {
		return cmp.Or(s.Send(&greylagv1.StreamLogsResponse{Data: []byte("job 1"), Next: next}), error(connect.NewError(connect.CodeAborted, errors.New("the session with node n1 ended"))))
	}
	if r.From > 0 {
		return s.Send(&greylagv1.StreamLogsResponse{Data: fmt.Appendf(nil, "00 from byte %d\n", r.From), Next: next + 20})
	}
	return errors.Join(
		s.Send(&greylagv1.StreamLogsResponse{Data: fmt.Appendf(nil, "job %s rank %d error %t follow %t lines %d bytes %d\n", r.Job, r.Rank, r.Error, r.Follow, r.TailLines, r.Tail)}),
		s.Send(&greylagv1.StreamLogsResponse{Data: []byte("done\n")}))
}
