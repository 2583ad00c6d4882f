// Package checkpoints implements gctl checkpoint: the saved work of jobs.
//
// It decides which directory a new checkpoint gets, and writes and verifies manifests with the permissions of the
// user. The cluster records which checkpoints exist, and chooses the one that an attempt resumes from.
package checkpoints

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/checkpoint"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// commands holds the subcommands of one run of gctl.
type commands struct{ *tool.Tool }

const long = `Records the saved work of jobs, so that the next attempt resumes from it. A
checkpoint is a directory on a file system that all nodes of the job share, or a
prefix of an S3 bucket. In a job that was submitted with --checkpoint=FOLDER:

  dir=$(gctl checkpoint begin)          # an empty directory
  ./train --save "$dir"                 # write all files, and close them
  gctl checkpoint commit "$dir" --step 4000

The next attempt finds the newest checkpoint that is not damaged in
GREYLAG_RESUME_FROM, and its step in GREYLAG_RESUME_STEP.`

// Command returns gctl checkpoint.
func Command(t *tool.Tool) *cobra.Command {
	x := commands{t}
	c := &cobra.Command{
		Use: "checkpoint", Short: "Record and verify the saved work of jobs", Long: long, GroupID: tool.GroupJobs, Args: tool.RequireSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(x.begin(), x.commit(), x.list(), x.verify(), x.advise(), x.drop())
	return c
}

// attempt is the attempt in which this process runs.
type attempt struct {
	job    uint64
	number uint32
}

// thisAttempt returns the attempt in which this process runs.
func (t commands) thisAttempt() (a attempt, err error) {
	job, errs := strconv.ParseUint(t.Variable("GREYLAG_JOB_ID"), 10, 64)
	number, also := strconv.ParseUint(t.Variable("GREYLAG_ATTEMPT"), 10, 32)
	if errors.Join(errs, also) != nil {
		return a, &ui.UsageError{Problem: "not inside a job: GREYLAG_JOB_ID and GREYLAG_ATTEMPT are not set", Advice: "call this command in the script of a job"}
	}
	return attempt{job, uint32(number)}, nil
}

const beginLong = `Creates an empty directory for a checkpoint of this job, and prints its path:
FOLDER/aATTEMPT-NUMBER in the folder of --checkpoint. It is not a checkpoint
before it is committed. In S3 it prints an unused prefix, and creates nothing.

If the cluster limits how many jobs write to the file system at a time, the
command waits for its turn. Jobs that are about to be preempted come first, then
those that would repeat the most work for each byte that they write. A job keeps
its turn until it commits, at most 10 minutes.`

func (t commands) begin() *cobra.Command {
	return &cobra.Command{
		Use: "begin", Short: "Create a directory for a checkpoint of this job", Long: beginLong, Args: cobra.NoArgs,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			a, err := t.thisAttempt()
			if err != nil {
				return err
			}
			folder := t.Variable("GREYLAG_CHECKPOINT_DIR")
			if folder == "" {
				return &ui.UsageError{Problem: "the job has no directory for checkpoints", Advice: "submit it with --checkpoint=FOLDER"}
			}
			t.surviveSignals()
			if err := t.awaitSlot(ctx, c, a, folder); err != nil {
				return err
			}
			dir := newPrefix(folder, a.number, t.Now())
			if !cluster.InS3(folder) {
				if dir, err = newDir(folder, a.number, t.recorded(ctx, c, a)); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintln(t.Stdout, dir)
			return err
		}),
	}
}

const (
	// slotPoll is the time between two requests for a slot.
	slotPoll = 2 * time.Second
	// slotTimeout limits one request.
	slotTimeout = 20 * time.Second
)

// awaitSlot waits for a slot of the store that contains the folder. If no controller answers, the job may write:
// saved work is worth more than the speed of the store.
func (t commands) awaitSlot(ctx context.Context, c ui.Cluster, a attempt, folder string) error {
	noted := false
	for {
		limited, cancel := context.WithTimeout(ctx, slotTimeout)
		answer, err := c.Jobs().BeginCheckpoint(limited, &greylagv1.BeginCheckpointRequest{Job: a.job, Attempt: a.number, Dir: folder})
		cancel()
		switch code := connect.CodeOf(err); {
		case err == nil && answer.Granted:
			return nil
		case err != nil && (code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded):
			t.Note("no controller answers: writing without a slot of a checkpoint store")
			return nil
		case err != nil:
			return err
		case !noted:
			t.Note("waiting for one of the %d slots of checkpoint store %s; jobs ahead: %d", answer.Slots, answer.Store, answer.Ahead)
			noted = true
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(slotPoll):
		}
	}
}

// surviveSignals ignores the signals that a job gets before its end, or to write a checkpoint: all of its processes
// get them, and a commit in progress must be completed. SIGKILL limits its time.
func (t commands) surviveSignals() {
	if t.Variable(config.SocketEnv) != "" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	}
}

// newPrefix returns a prefix in S3 for a checkpoint of an attempt, which no other process gets.
func newPrefix(folder string, number uint32, now time.Time) string {
	return fmt.Sprintf("%s/a%d-%s-%s", folder, number, now.UTC().Format("20060102T150405Z"), rand.Text()[:8])
}

// recorded returns the names of the recorded directories of the job; the user may have removed some. Without an answer
// of a controller it returns none.
func (t commands) recorded(ctx context.Context, c ui.Cluster, a attempt) (names []string) {
	limited, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	job, err := t.current(limited, c, a)
	if err != nil {
		return nil
	}
	for _, k := range job.Checkpoints {
		names = append(names, filepath.Base(k.Dir))
	}
	return names
}

// newDir creates the next directory of an attempt, after those in the folder and the recorded ones. Processes that call
// it at the same time get different ones. O(entries of the folder).
func newDir(folder string, number uint32, recorded []string) (string, error) {
	prefix := fmt.Sprintf("a%d-", number)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	names := slices.Clone(recorded)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	next := 1
	for _, name := range names {
		digits, ours := strings.CutPrefix(name, prefix)
		if n, err := strconv.Atoi(digits); ours && err == nil {
			next = max(next, n+1)
		}
	}
	for {
		dir := filepath.Join(folder, fmt.Sprintf("%s%04d", prefix, next))
		err := os.Mkdir(dir, 0o777)
		if !errors.Is(err, os.ErrExist) {
			return dir, err
		}
		next++
	}
}

const commitLong = `Hashes the files of a directory, writes their list to a file
greylag-manifest-*.json there, and records the directory as a checkpoint of this
attempt. All files must be closed; a file that changes meanwhile is an error. Call
it once, not in each task.

Repeating a commit is safe: the same content is recorded once. Only the current
attempt can commit, even while it is completing.

With --no-hash only the sizes are recorded, which takes no time. A later commit of
the same directory adds the hashes.`

func (t commands) commit() *cobra.Command {
	var step int64
	var noHash bool
	c := &cobra.Command{
		Use: "commit DIR", Short: "Record a directory as a checkpoint of this job", Long: commitLong, Args: cobra.ExactArgs(1),
	}
	c.Flags().Int64Var(&step, "step", cluster.NoStep, "training step")
	c.Flags().BoolVar(&noHash, "no-hash", false, "record the sizes of the files without their hashes")
	c.RunE = t.On(func(ctx context.Context, cl ui.Cluster, args []string) error {
		a, err := t.thisAttempt()
		if err != nil {
			return err
		}
		t.surviveSignals()
		request := &greylagv1.CommitCheckpointRequest{RequestId: client.NewRequestID(), Job: a.job, Attempt: a.number, Checkpoint: &greylagv1.Checkpoint{}}
		if c.Flags().Changed("step") {
			request.Checkpoint.Step = &step
		}
		job, err := t.current(ctx, cl, a)
		if err != nil {
			return err
		}
		if err := write(ctx, args[0], request, !noHash); err != nil {
			return err
		}
		answer, err := cl.Jobs().CommitCheckpoint(ctx, request)
		if err != nil {
			return err
		}
		t.warnLocal(request.Checkpoint.Dir, answer.Number == 1)
		t.warnStep(job, a, request.Checkpoint)
		if t.JSON {
			return t.WriteJSON(struct {
				Job    uint64 `json:"job"`
				Number uint32 `json:"number"`
			}{a.job, answer.Number})
		}
		k := request.Checkpoint
		t.Note("checkpoint %d of job %d: %s, %s", answer.Number, a.job, ui.Count(k.Files, "file"), ui.SizeText(cluster.Bytes(k.Bytes)))
		return nil
	})
	return c
}

// current returns the job, and refuses to hash the files of an attempt that was superseded. The cluster checks it again.
func (t commands) current(ctx context.Context, c ui.Cluster, a attempt) (*greylagv1.Job, error) {
	answer, err := c.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: strconv.FormatUint(a.job, 10)})
	switch {
	case err != nil:
		return nil, err
	case len(answer.Jobs) != 1:
		return &greylagv1.Job{}, nil
	case answer.Jobs[0].Attempt > a.number:
		return nil, fmt.Errorf("attempt %d of job %s was superseded by attempt %d: its checkpoints are not accepted", a.number, answer.Jobs[0].Ref, answer.Jobs[0].Attempt)
	}
	return answer.Jobs[0], nil
}

// warnStep warns if a new checkpoint of a job counts as no progress because of its step. O(checkpoints).
func (t commands) warnStep(j *greylagv1.Job, a attempt, k *greylagv1.Checkpoint) {
	if k.Step == nil {
		if j.RequeueAtLimit {
			t.Warn("no --step is given: at its time limit the job continues only after a checkpoint of a later step")
		}
		return
	}
	var later *greylagv1.Checkpoint
	for _, old := range j.Checkpoints {
		same := old.Dir == k.Dir && old.Attempt == a.number // it is committed again
		if !same && old.GetStep() > max(k.GetStep(), later.GetStep()) {
			later = old
		}
	}
	if later != nil {
		t.Warn(fmt.Sprintf("step %d is lower than step %d of checkpoint %d: the next attempt resumes from this one, and it counts as no progress", k.GetStep(), later.GetStep(), later.Number))
	}
}

// write writes the manifest of a directory, and sets the checkpoint of the request.
func write(ctx context.Context, dir string, request *greylagv1.CommitCheckpointRequest, withHashes bool) error {
	if !cluster.InS3(dir) {
		absolute, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		dir = absolute
	}
	if err := cluster.CheckCheckpointDir(dir); err != nil {
		return err
	}
	store, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	k := request.Checkpoint
	head := checkpoint.Header{Job: request.Job, Attempt: request.Attempt, Step: k.Step}
	m, err := checkpoint.Create(ctx, store, head, withHashes)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	digest, err := m.Write(ctx, store)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	k.Dir, k.Files, k.Bytes, k.Digest = dir, int64(m.Files), m.Bytes, digest[:]
	k.State = greylagv1.CheckpointState_CHECKPOINT_STATE_WRITTEN
	if m.Hashed() {
		k.State = greylagv1.CheckpointState_CHECKPOINT_STATE_VERIFIED
	}
	return nil
}

const verifyLong = `Reads the files of a checkpoint on this host and compares them with its list. A
checkpoint whose files differ is marked as damaged: no attempt resumes from it. Of
a job that has ended, the result is printed and not recorded. Without NUMBER it
verifies the newest one that is not damaged.`

func (t commands) verify() *cobra.Command {
	return &cobra.Command{
		Use: "verify [JOB [NUMBER]]", Short: "Compare the files of a checkpoint with their hashes", Long: verifyLong, Args: cobra.MaximumNArgs(2),
		ValidArgsFunction: t.CompleteArgs(ui.JobNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			job, err := t.job(ctx, c, args)
			if err != nil {
				return err
			}
			k, err := choose(job, args)
			if err != nil {
				return err
			}
			return t.verifyOne(ctx, c, job, k)
		}),
	}
}

// verifyOne verifies a checkpoint and records the result. The exit status is that of a failure if it is damaged.
func (t commands) verifyOne(ctx context.Context, c ui.Cluster, job *greylagv1.Job, k *greylagv1.Checkpoint) error {
	var digest [32]byte
	copy(digest[:], k.Digest)
	m, err := checkpoint.Verify(ctx, k.Dir, digest, checkpoint.All)
	request := &greylagv1.SetCheckpointRequest{
		RequestId: client.NewRequestID(), Job: job.Id, Number: k.Number, Digest: k.Digest, Action: greylagv1.CheckpointAction_CHECKPOINT_ACTION_VERIFY,
	}
	var damage *checkpoint.Damage
	switch {
	case err == nil && !m.Hashed() && k.State == greylagv1.CheckpointState_CHECKPOINT_STATE_DAMAGED:
		return fmt.Errorf("checkpoint %d of job %s has no hashes, so it cannot be verified", k.Number, job.Ref)
	case errors.As(err, &damage):
		request.Action, request.Detail = greylagv1.CheckpointAction_CHECKPOINT_ACTION_DAMAGE, damage.Text
	case err != nil:
		return fmt.Errorf("cannot read checkpoint %d: %w", k.Number, err)
	}
	noted := "; not recorded: job " + job.Ref + " has ended"
	if state, err := cluster.ParseJobState(wire.Word(job.State)); err == nil && !state.Final() {
		if _, err := c.Jobs().SetCheckpoint(ctx, request); err != nil {
			return err
		}
		if noted, err = t.released(ctx, c, job); err != nil {
			return err
		}
	}
	if damage != nil {
		return fmt.Errorf("checkpoint %d of job %s is damaged: %s%s", k.Number, job.Ref, damage.Text, noted)
	}
	what := "the hashes match"
	if !m.Hashed() {
		what = "the sizes match; it has no hashes"
	}
	t.Note("checkpoint %d of job %s: %s, %s: %s%s", k.Number, job.Ref, ui.Count(int64(m.Files), "file"), ui.SizeText(cluster.Bytes(m.Bytes)), what, noted)
	return nil
}

// released returns a text if a job was held because all of its checkpoints were damaged, and is not any more; "" for
// another job.
func (t commands) released(ctx context.Context, c ui.Cluster, was *greylagv1.Job) (string, error) {
	if was.Reason != greylagv1.Reason_REASON_CHECKPOINT_DAMAGED {
		return "", nil
	}
	answer, err := c.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: was.Ref})
	if err != nil || len(answer.Jobs) != 1 || answer.Jobs[0].Reason == was.Reason {
		return "", err
	}
	return "; job " + was.Ref + " is released", nil
}

func (t commands) drop() *cobra.Command {
	return &cobra.Command{
		Use: "drop JOB NUMBER...", Short: "Remove the records of checkpoints; their files are not touched", Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: t.CompleteArgs(ui.JobNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			job, err := t.job(ctx, c, args)
			if err != nil {
				return err
			}
			for _, word := range args[1:] {
				k, err := choose(job, []string{args[0], word})
				if err != nil {
					return err
				}
				request := &greylagv1.SetCheckpointRequest{
					RequestId: client.NewRequestID(), Job: job.Id, Number: k.Number, Action: greylagv1.CheckpointAction_CHECKPOINT_ACTION_DROP,
				}
				if _, err := c.Jobs().SetCheckpoint(ctx, request); err != nil {
					return err
				}
				t.Note("dropped checkpoint %d of job %s; its files stay in %s", k.Number, job.Ref, k.Dir)
			}
			return nil
		}),
	}
}

// job returns the job of the first argument, or the one in which this process runs.
func (t commands) job(ctx context.Context, c ui.Cluster, args []string) (*greylagv1.Job, error) {
	ref := t.Variable("GREYLAG_JOB_ID")
	if len(args) > 0 {
		ref = args[0]
	}
	if ref == "" {
		return nil, &ui.UsageError{Problem: "no job given, and this is not inside a job", Advice: "give its ID, for example gctl checkpoint list JOB"}
	}
	refs, err := ui.Refs([]string{ref})
	if err != nil {
		return nil, err
	}
	answer, err := c.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: refs[0], Read: t.Read()})
	if err != nil {
		return nil, err
	}
	if len(answer.Jobs) != 1 {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("job %s is an array of %d elements", ref, len(answer.Jobs)), Advice: fmt.Sprintf("name one of them, such as %s", answer.Jobs[0].Ref)}
	}
	return answer.Jobs[0], nil
}

// choose returns the checkpoint that the second argument names, or the newest one that is not damaged.
func choose(job *greylagv1.Job, args []string) (*greylagv1.Checkpoint, error) {
	var found *greylagv1.Checkpoint
	for _, k := range job.Checkpoints {
		if len(args) > 1 && args[1] == strconv.FormatUint(uint64(k.Number), 10) ||
			len(args) < 2 && k.State != greylagv1.CheckpointState_CHECKPOINT_STATE_DAMAGED {
			found = k
		}
	}
	switch {
	case found != nil:
		return found, nil
	case len(args) > 1:
		return nil, &ui.UsageError{Problem: fmt.Sprintf("job %s has no checkpoint %q", job.Ref, args[1]), Advice: "gctl checkpoint list " + job.Ref + " lists them"}
	}
	return nil, fmt.Errorf("job %s has no usable checkpoint", job.Ref)
}
