package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/checkpoint"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// checkpointDir returns the directory of a job's checkpoints; "" if it has none.
func checkpointDir(w *greylagv1.WantedTask, node string) string {
	if w.GetCheckpointDir() == "" {
		return "" // an empty pattern is the path "."
	}
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
		if dir != "" && !cluster.InS3(dir) {
			list = append(list, dir)
		}
	}
	return list
}

// prepareCheckpoint creates the directory of a job's checkpoints in the first attempt, or verifies this node's share
// of the checkpoint to resume from. A damaged checkpoint ends the attempt: the next one
// resumes from the one before.
func (a *Agent) prepareCheckpoint(ctx context.Context, l *launch, spec *tasks.Spec) error {
	from := l.spec.GetResume()
	if from == nil {
		return a.createCheckpointDir(ctx, l, spec.Owner)
	}
	p := checkpoint.Preparation{Verify: from.GetDir(), Index: int(from.GetShare()), Of: int(from.GetOf())}
	copy(p.Digest[:], from.GetDigest())
	if cluster.InS3(p.Verify) {
		p.Env, p.Credentials = s3Environment(spec.Env), l.credentials
	}
	l.setWaitingFor(fmt.Sprintf("checkpoint %d in %s is still being verified", from.GetNumber(), p.Verify))
	err := a.inChild(ctx, l, spec.Owner, p)
	var damage *checkpoint.Damage
	switch {
	case errors.As(err, &damage):
		return failed(cluster.CheckpointFailed, "checkpoint %d: %s", from.GetNumber(), damage.Text)
	case errors.Is(err, checkpoint.ErrCredentials):
		return failed(cluster.CredentialsRefused, "cannot read checkpoint %d in %s: %v", from.GetNumber(), p.Verify, err)
	case err != nil && ctx.Err() == nil:
		return failed(cluster.NodeFault, "cannot read checkpoint %d in %s: %v", from.GetNumber(), p.Verify, err)
	}
	return err
}

// credentialsSecret is the secret that is a file of S3 credentials.
const credentialsSecret = cluster.CredentialsSecret

// s3Environment returns the variables of a task that reach its S3 buckets.
func s3Environment(env []string) (list []string) {
	for _, setting := range env {
		if name, _, _ := strings.Cut(setting, "="); slices.Contains(checkpoint.S3Variables, name) {
			list = append(list, setting)
		}
	}
	return list
}

// createCheckpointDir creates the directory of a job's checkpoints as the user, if the job has one. It is not created
// for an attempt that resumes: on a node without the file system it would hide that the checkpoints are missing.
func (a *Agent) createCheckpointDir(ctx context.Context, l *launch, owner tasks.Owner) error {
	p := checkpoint.Preparation{Create: checkpointDir(l.spec, l.node)}
	if p.Create == "" || cluster.InS3(p.Create) {
		return nil
	}
	l.setWaitingFor("directory " + p.Create + " has not been created yet")
	err := a.inChild(ctx, l, owner, p)
	switch {
	case errors.Is(err, checkpoint.ErrCreate):
		return failed(cluster.LaunchFailed, "%v", err)
	case err != nil && ctx.Err() == nil:
		return failed(cluster.NodeFault, "cannot create directory %s: %v", p.Create, err)
	}
	return err
}

// inChild makes a preparation as the user. Few children run at a time, since a manifest can need much memory.
func (a *Agent) inChild(ctx context.Context, l *launch, owner tasks.Owner, p checkpoint.Preparation) error {
	select {
	case a.preparing <- struct{}{}:
		defer func() { <-a.preparing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var as *syscall.Credential
	if os.Geteuid() == 0 {
		as = &syscall.Credential{Uid: owner.UID, Gid: owner.GID, Groups: owner.Groups}
	}
	if group, limited := a.verificationGroup(l); limited {
		p.Group = group
	}
	return checkpoint.PrepareIn(ctx, a.cfg.CheckpointProgram, as, len(l.cpus), p)
}

// verificationGroup creates a control group for a child that prepares checkpoints, so that its memory and CPU time are
// not those of the daemon: with the CPUs and the memory of the task. false if the host does not allow it.
func (a *Agent) verificationGroup(l *launch) (cgroup.Group, bool) {
	if a.cfg.CheckpointGroup == "" {
		return cgroup.Group{}, false
	}
	hierarchy, err := cgroup.Detect()
	if err != nil {
		return cgroup.Group{}, false
	}
	group := hierarchy.Group(filepath.Join(a.cfg.CheckpointGroup, a.verificationName()+taskID(l.id).String()))
	limits := cgroup.Limits{Memory: max(uint64(max(l.own.GetMemory(), 0)), minVerificationMemory), CPUs: max(len(l.cpus), 1)}
	if err := group.Create(limits); err != nil {
		a.log.Warn("checkpoint is verified in the control group of gnoded", "job", l.id.Job, "attempt", l.id.Attempt, "err", err)
		return cgroup.Group{}, false
	}
	return group, true
}

// verificationName begins the names of the control groups of this process of the daemon.
func (a *Agent) verificationName() string {
	return verificationPrefix + strconv.FormatUint(a.counting, 10) + "-"
}

// removeOldVerifications ends the children of earlier processes of the daemon, and removes their control groups.
func (a *Agent) removeOldVerifications(ctx context.Context) {
	hierarchy, err := cgroup.Detect()
	if a.cfg.CheckpointGroup == "" || err != nil {
		return
	}
	groups, err := hierarchy.Group(a.cfg.CheckpointGroup).Children()
	for _, group := range groups {
		name := filepath.Base(group.Path())
		if !strings.HasPrefix(name, verificationPrefix) || strings.HasPrefix(name, a.verificationName()) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, oldVerificationTimeout)
		err = errors.Join(err, group.Kill(limited))
		cancel()
		err = errors.Join(err, group.Remove())
	}
	if err != nil && ctx.Err() == nil {
		a.log.Warn("control groups of earlier verifications of checkpoints remain", "err", err)
	}
}

const (
	// verificationPrefix begins the names of control groups of children that prepare checkpoints.
	verificationPrefix = "verify-"
	// minVerificationMemory is the memory that such a child may use at least, whatever its job requests.
	minVerificationMemory = 1 << 30
	// oldVerificationTimeout is how long a child of an earlier process of the daemon may outlive SIGKILL: a file server
	// that does not answer keeps it.
	oldVerificationTimeout = 5 * time.Second
)

// maxPreparing is the number of children that prepare checkpoints at a time.
const maxPreparing = 4
