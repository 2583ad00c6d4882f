package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/image"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// jobService implements JobService.
type jobService struct {
	*Server
	*joblist.Service
}

// maxSubmit bounds the jobs of one request.
const maxSubmit = 10_000

// SubmitJobs stores jobs, all of them or none.
func (s *jobService) SubmitJobs(ctx context.Context, p *greylagv1.SubmitJobsRequest) (*greylagv1.SubmitJobsResponse, error) {
	c := call.From(ctx)
	if n := len(p.GetJobs()); n == 0 || n > maxSubmit {
		return nil, call.Refuse(command.InvalidArgument, "", "%d jobs to submit: a request takes 1 to %d", n, maxSubmit)
	}
	if err := s.checkDisk(); err != nil {
		return nil, err
	}
	cmd, subs, notes, err := s.prepare(ctx, c, p)
	if err != nil {
		return nil, err
	}
	// After the request's key was computed from the request: a repetition may find more archived
	// jobs.
	if err := s.resolveArchived(c, cmd); err != nil {
		return nil, err
	}
	answer, err := s.submit(ctx, cmd, subs)
	if err != nil {
		return nil, s.unpaidArray(ctx, c, cmd.Jobs, err)
	}
	s.limits.CountJobs(c, jobsIn(answer), s.cfg.Clock())
	response := &greylagv1.SubmitJobsResponse{Index: answer.Index, Lien: int64(answer.SetAside), Warnings: append(notes, overBudget(answer.Over)...)}
	if !s.cfg.Notifies && slices.ContainsFunc(subs, func(x wire.Submission) bool { return x.Spec.MailTypes != 0 }) {
		response.Warnings = append(response.Warnings, "--mail-type has no effect: this cluster sends no mail")
	}
	response.Warnings = append(response.Warnings, s.unchecked(subs)...)
	response.Warnings = append(response.Warnings, warnExcluded(s.cfg.State.View(), subs)...)
	response.Warnings = append(response.Warnings, warnBurst(s.cfg.State.View(), subs)...)
	response.Warnings = append(response.Warnings, s.warnUnpaidPartitions(subs, answer)...)
	response.Warnings = append(response.Warnings, warnMaxPrice(s.cfg.State.View(), cluster.InstantOf(s.cfg.Clock()), cmd.Jobs)...)
	for i, id := range answer.First {
		response.Jobs = append(response.Jobs, &greylagv1.Submitted{Id: uint64(id), ArraySize: answer.Counts[i]})
	}
	return response, nil
}

// checkDisk refuses jobs while the leader's disk is nearly full: permanently if every controller's is,
// else until a controller with space leads, which the caller's next try finds.
func (s *Server) checkDisk() error {
	switch {
	case !s.cfg.Members.DiskLow():
		return nil
	case s.cfg.Members.NoVoterHasSpace():
		return call.Refuse(command.Exhausted, "administrators: free space in data_dir of the controllers", "the controllers' disks are nearly full: submissions are refused")
	}
	return raftlog.ErrNotLeader
}

// readSubmission reads a specification for its owner.
func readSubmission(p *greylagv1.JobSpec, owner cluster.Identity) (wire.Submission, error) {
	if name := p.GetImage(); name != "" {
		if _, err := image.Parse(name); err != nil {
			return wire.Submission{}, call.Refuse(command.InvalidArgument,
				"write registry/name:tag, in lower case, or oci-archive:/path/image.tar", "image %v", err)
		}
	}
	sub, err := wire.ReadSubmission(p, owner)
	if err == nil {
		err = enoughMemory(&sub.Spec.Request)
	}
	return sub, err
}

// leastMemory is the least memory that a task needs to start. With runc 1.1 none starts with 1 MiB,
// most do with 2 and all with 3, whatever their program; the rest is for devices and other
// runtimes. Where systemd keeps control groups of version 2, runc takes up to 14; tasks with less
// fail there, and their node reports it.
const leastMemory = 6 * cluster.MiB

// enoughMemory refuses jobs that would fail at every start.
func enoughMemory(r *cluster.Request) error {
	most := r.MemoryOn(max(r.GPUsPerNode, r.GPUs)) // on any node
	if most == 0 || most >= leastMemory {
		return nil
	}
	return call.Refuse(command.InvalidArgument, "request more with --mem; the default unit is MiB",
		"%s of memory on a node is too little to start a task: at least %s", most, leastMemory)
}

// jobsIn returns the number of jobs that were made, including array elements.
func jobsIn(answer *command.Submitted) (n int) {
	for _, size := range answer.Counts {
		n += max(1, int(size))
	}
	return n
}

// overBudget warns of soft budgets that are exceeded.
func overBudget(over []accounting.Warning) (warnings []string) {
	for _, o := range over {
		warnings = append(warnings, fmt.Sprintf("account %s is over its budget, %s of %s: its jobs are in the lowest tier until it is within budget again", o.Node, o.Used.Short(), o.Limit.Short()))
	}
	return warnings
}

// warnUnpaidPartitions warns of the first job that is not paid for in all of its partitions.
func (s *jobService) warnUnpaidPartitions(subs []wire.Submission, answer *command.Submitted) []string {
	v := s.cfg.State.View()
	for i := range subs {
		first := answer.First[i]
		if len(subs[i].Spec.OtherPartitions) == 0 || !v.Policy().Credits.On {
			continue
		}
		for id := first; id < first+cluster.JobID(max(1, answer.Counts[i])); id++ {
			j, known := v.Job(id)
			if !known {
				continue
			}
			if paid := v.PaidIn(j); paid != nil {
				return []string{fmt.Sprintf("job %s starts in partition %s only: no credits cover the others", j.Ref(), strings.Join(paid, ", "))}
			}
		}
	}
	return nil
}

// warnExcluded warns of the first excluded node that the cluster does not have. It is no error: nodes
// are removed, and scripts still exclude them.
func warnExcluded(v *state.View, subs []wire.Submission) []string {
	for i := range subs {
		for _, name := range subs[i].Spec.Request.Exclude {
			if _, known := v.Node(name); !known {
				return []string{fmt.Sprintf("--exclude: unknown node %q; gctl nodes lists the nodes", name)}
			}
		}
	}
	return nil
}

// warnBurst warns of the first job that requests leased nodes, and gets none or loses what it writes there.
func warnBurst(v *state.View, subs []wire.Submission) []string {
	policy := v.Policy()
	_, has := policy.Cloud()
	for i := range subs {
		spec := &subs[i].Spec
		switch {
		case !spec.Burst.On():
			continue
		case !has:
			return []string{"--burst has no effect: this cluster has no partition of cloud nodes"}
		case !policy.Burst.On:
			return []string{"--burst: cloud burst is disabled in the policy (burst.enabled = false)"}
		case spec.CheckpointDir != "" && !cluster.InS3(spec.CheckpointDir):
			return []string{"--burst: checkpoints on a cloud node are lost with the node: use --checkpoint=s3://BUCKET/PREFIX"}
		case len(spec.StageOut) == 0:
			return []string{"--burst: files that the job writes on a cloud node are lost with the node: use --stage-out=PATH=URL, which also copies its output"}
		}
	}
	return nil
}

// unchecked warns of named accounts if the cluster has no accounts, since no check refuses them.
func (s *jobService) unchecked(subs []wire.Submission) []string {
	for i := range subs {
		name := subs[i].Spec.Account
		if name == "" {
			continue
		}
		if s.cfg.State.View().Accounts().Tree != nil {
			return nil
		}
		return []string{fmt.Sprintf("the account %.64q was not checked: this cluster has no accounts yet", name)}
	}
	return nil
}

// ofJob says which of several jobs a refusal is about.
func ofJob(err error, i, of int) error {
	var r *command.Refusal
	if of > 1 && errors.As(err, &r) {
		r.Message = "job " + cluster.JobID(i+1).String() + " of the request: " + r.Message
	}
	return err
}

// submission builds the command without its blobs. The digests in the specifications stand for the
// contents where requests are compared.
func submission(c *call.Caller, id string, subs []wire.Submission) (*command.SubmitJobs, error) {
	cmd := &command.SubmitJobs{Jobs: make([]command.Submission, len(subs))}
	for i := range subs {
		cmd.Jobs[i] = subs[i].Submission
	}
	payload := command.Encode(cmd)
	if len(payload) > maxEntry {
		return nil, call.Refuse(command.InvalidArgument, "submit them in several requests, or as an array", "the request is too large: %d bytes without scripts, at most %d", len(payload), maxEntry)
	}
	var err error
	cmd.Request, err = c.RequestID(id, "", payload)
	cmd.Actor = c.Actor()
	return cmd, err
}

// submit proposes the command with the blobs that the state or the archive here does not have: the
// state of a restored cluster may know contents that no controller has. A blob may be dropped
// between this check and the command: then all are sent.
func (s *jobService) submit(ctx context.Context, cmd *command.SubmitJobs, subs []wire.Submission) (*command.Submitted, error) {
	v := s.cfg.State.View()
	has := func(d [32]byte) bool {
		if !v.HasBlob(d) {
			return false
		}
		missing, err := s.cfg.Archive.Missing([]cluster.Digest{d})
		return err == nil && len(missing) == 0
	}
	for tries := 0; ; tries++ {
		if err := s.attach(ctx, cmd, subs, has); err != nil {
			return nil, err
		}
		answer, _, err := call.Propose[*command.Submitted](ctx, s.cfg.Leader, cmd)
		var r *command.Refusal
		if errors.As(err, &r) && r.Code == command.Incomplete && tries == 0 {
			has = func([32]byte) bool { return false }
			continue
		}
		return answer, err
	}
}

// attach puts the needed blobs into the command, or stores them before it if they are too large for
// that.
func (s *jobService) attach(ctx context.Context, cmd *command.SubmitJobs, subs []wire.Submission, has func([32]byte) bool) error {
	inline, large := blobsOf(subs, has)
	size := 0
	for _, b := range inline {
		size += len(b)
	}
	if size > maxEntry/2 {
		inline, large = nil, append(large, inline...)
	}
	for _, b := range large {
		if err := s.putBlob(ctx, b); err != nil {
			return err
		}
	}
	cmd.Blobs = inline
	return nil
}
