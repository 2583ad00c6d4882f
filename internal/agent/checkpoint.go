package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/checkpoint"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// checkpointDir returns the directory of a job's checkpoints; "" if it has none.
func checkpointDir(w *greylagv1.WantedTask, node string) string {
	return expand(w.GetCheckpointDir(), w, node)
}

// resumeStep returns the step of the checkpoint to resume from; "" if it has none.
func resumeStep(w *greylagv1.WantedTask) string {
	if w.GetResume() == nil || w.GetResume().Step == nil {
		return ""
	}
	return number(w.GetResume().GetStep())
}

// checkpointDirs returns the directories of a job's checkpoints that its tasks have to see.
func checkpointDirs(w *greylagv1.WantedTask, node string) (list []string) {
	for _, dir := range []string{checkpointDir(w, node), w.GetResume().GetDir()} {
		if dir != "" {
			list = append(list, dir)
		}
	}
	return list
}

// prepareCheckpoint creates the directory of a job's checkpoints, and verifies this node's share of the checkpoint
// to resume from. A damaged checkpoint ends the attempt: the next one resumes from the one before.
func (a *Agent) prepareCheckpoint(ctx context.Context, l *launch, owner tasks.Owner) error {
	p := checkpoint.Preparation{Create: checkpointDir(l.spec, l.node), Index: int(l.spec.GetRank()), Of: len(l.spec.GetNodes())}
	from := l.spec.GetResume()
	if from != nil {
		p.Verify = from.GetDir()
		copy(p.Digest[:], from.GetDigest())
	}
	if p.Create == "" && p.Verify == "" {
		return nil
	}
	l.setWaitingFor(fmt.Sprintf("checkpoint %d in %s is still being verified", from.GetNumber(), p.Verify))
	if p.Verify == "" {
		l.setWaitingFor("directory " + p.Create + " has not been created yet")
	}
	var as *syscall.Credential
	if os.Geteuid() == 0 {
		as = &syscall.Credential{Uid: owner.UID, Gid: owner.GID, Groups: owner.Groups}
	}
	err := checkpoint.PrepareIn(ctx, a.cfg.CheckpointProgram, as, len(l.cpus), p)
	var damage *checkpoint.Damage
	switch {
	case errors.As(err, &damage):
		return failed(cluster.CheckpointFailed, "checkpoint %d: %s", from.GetNumber(), damage.Text)
	case errors.Is(err, checkpoint.ErrCreate):
		return failed(cluster.LaunchFailed, "%v", err)
	case err != nil && ctx.Err() == nil:
		return failed(cluster.NodeFault, "cannot read checkpoint %d in %s: %v", from.GetNumber(), p.Verify, err)
	}
	return err
}
