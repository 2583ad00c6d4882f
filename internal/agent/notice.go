package agent

import (
	"context"
	"fmt"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/userfile"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// noticeTimeout limits how long a signal waits for a line in the output, whose file system may not
// respond.
const noticeTimeout = 2 * time.Second

// stopNotice returns the line for the output of a task that is stopped, in the format of
// slurmstepd, or "" for none; of a node that leaves an elastic job, which continues, in one of its own. w is the newest
// version of the task that the controllers sent.
func stopNotice(w *greylagv1.WantedTask, node string, now time.Time) string {
	reason := wire.Word(w.GetStopReason())
	switch reason {
	case "":
		return ""
	case "RESIZE":
		return fmt.Sprintf("greylag: *** NODE %s LEAVES JOB %s AT %s: THE JOB CONTINUES ***\n", node, w.GetRef(), now.Format("2006-01-02T15:04:05"))
	case "cancelled":
		reason = ""
	default:
		reason = " DUE TO " + reason
	}
	return fmt.Sprintf("greylag: error: *** JOB %s ON %s CANCELLED AT %s%s ***\n",
		w.GetRef(), node, now.Format("2006-01-02T15:04:05"), reason)
}

// memoryNotice returns the line for the output of a task that was killed for memory.
func memoryNotice(w *greylagv1.WantedTask, exit tasks.Exit) string {
	return fmt.Sprintf("greylag: error: Detected %d oom_kill event in job %s. Some of its processes have been OOM Killed.\n",
		max(exit.OOMKills, 1), w.GetRef())
}

// outputNotice returns the line for the output of a task that was killed for the size of its output.
func outputNotice(w *greylagv1.WantedTask) string {
	return fmt.Sprintf("\ngreylag: error: *** JOB %s KILLED: its output exceeds max_output = %s ***\n", w.GetRef(), cluster.Bytes(w.GetMaxOutput()))
}

// notify appends a line to the error output of a task, or to its output if that holds both. It
// opens the file as the user, creates none, and writes to regular files only. It ignores errors:
// the state of the job has the same information.
func (a *Agent) notify(ctx context.Context, w *greylagv1.WantedTask, line string) {
	if line == "" || w == nil || w.GetIdle() {
		return
	}
	stdout, stderr := a.outputFiles(reconcile.ID{Job: cluster.JobID(w.GetJob()), Attempt: cluster.Attempt(w.GetAttempt())}, w)
	if stderr == "" {
		stderr = stdout
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		account := a.accounts.of(ctx, w.GetUid(), w.GetGid())
		owner := tasks.Owner{UID: w.GetUid(), GID: w.GetGid(), Groups: account.groups}
		_ = userfile.Append(owner, stderr, line)
	}()
	select {
	case <-written:
	case <-time.After(noticeTimeout):
	}
}
