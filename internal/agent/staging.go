package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/checkpoint"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/staging"
	"github.com/greylag/greylag/internal/userchild"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// maxCopying is the number of children that copy files before a start, and of those after an end, at a time.
	maxCopying = 16
	// stageOutLimit is how long the files of StageOut of a job may take, and stageOutMargin the time before the end of
	// the lease of the node at which that ends.
	stageOutLimit  = 30 * time.Minute
	stageOutMargin = time.Minute
)

// stageIn copies the input files of a job to this node, as its user.
func (a *Agent) stageIn(ctx context.Context, l *launch, owner tasks.Owner) error {
	if len(l.spec.GetStageIn()) == 0 {
		return nil
	}
	copies, err := a.copiesOf(l, l.spec.GetStageIn())
	if err != nil {
		return failed(cluster.LaunchFailed, "stage-in: %v", err)
	}
	l.setWaitingFor("its input files are still being copied")
	began := time.Now()
	answer, err := a.copyFiles(ctx, a.copyingIn, l, owner, staging.Order{In: true, Copies: copies})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errPostpone):
		return err
	case err != nil:
		return nodeFault(err, "stage-in")
	case len(answer.Failures) == 0:
		a.log.Info("input files copied", "job", l.id.Job, "attempt", l.id.Attempt, "bytes", answer.Bytes, "took", time.Since(began).Round(time.Millisecond))
		return nil
	}
	cause := cluster.LaunchFailed
	switch answer.Failures[0].Kind {
	case staging.Credentials:
		cause = cluster.CredentialsRefused
	case staging.Temporary:
		cause = cluster.NodeFault
	}
	return failed(cause, "stage-in %s", answer.Failures[0].Text)
}

// nodeFault returns an error that is not the user's, unless it says otherwise.
func nodeFault(err error, what string) error {
	if f := (*failure)(nil); errors.As(err, &f) {
		return err
	}
	return failed(cluster.NodeFault, "%s: %v", what, err)
}

// copiesOf returns what a child copies: where the working directory of the job is on this node.
func (a *Agent) copiesOf(l *launch, list []*greylagv1.Staging) (copies []staging.Copy, err error) {
	dir := filepath.Clean(l.spec.GetWorkDir())
	host, readOnly, mounted := hostPath(dir, l.folders, l.spec.GetMounts())
	image := l.spec.GetImage() != "" && a.cfg.Isolated
	switch {
	case readOnly:
		return nil, fmt.Errorf("the working directory %s is mounted read-only", dir)
	case image && !mounted && (dir == "/tmp" || dir == "/var/tmp" || !temporary(dir) && !mayShow(dir)):
		return nil, fmt.Errorf("the working directory %s is one of the image, and not of the node: choose another with --chdir", dir)
	}
	for _, x := range list {
		where := filepath.Join(dir, x.GetPath())
		for _, m := range l.spec.GetMounts() {
			target := filepath.Clean(m.GetTarget())
			_, inner := within(target, dir)
			if _, hidden := within(where, target); inner && hidden && target != dir {
				return nil, fmt.Errorf("%s is in %s, which --mount shows", x.GetPath(), target)
			}
		}
		copies = append(copies, staging.Copy{Dir: host, Path: x.GetPath(), URL: x.GetUrl()})
	}
	return copies, nil
}

// copyFiles copies files in a child, as the user.
func (a *Agent) copyFiles(ctx context.Context, slots chan struct{}, l *launch, owner tasks.Owner, o staging.Order) (answer staging.Answer, err error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return answer, ctx.Err()
	}
	o.Tag = fmt.Sprintf("%s/%s", l.node, taskID(l.id))
	c := userchild.Command{Program: a.cfg.CheckpointProgram, Cores: len(l.cpus)}
	if os.Geteuid() == 0 {
		c.As = &syscall.Credential{Uid: owner.UID, Gid: owner.GID, Groups: owner.Groups}
	}
	given, err := a.blob(ctx, l.spec.GetEnvironment())
	if err != nil {
		return answer, err
	}
	c.Env = stagingEnvironment(given, a.accounts.of(ctx, l.spec.GetUid(), l.spec.GetGid()).home)
	chosen := slices.ContainsFunc(c.Env, func(s string) bool { return strings.HasPrefix(s, checkpoint.CredentialsVariable+"=") })
	inS3 := slices.ContainsFunc(o.Copies, func(c staging.Copy) bool { return cluster.InS3(c.URL) })
	if inS3 && !chosen {
		if o.Credentials, err = a.stagingCredentials(ctx, l); err != nil {
			return answer, err
		}
	}
	if group, limited := a.verificationGroup(l); limited {
		c.Group = group
	}
	return staging.Run(ctx, c, o)
}

// stagingEnvironment returns the variables of a job, of those that the user gave and HOME, that reach its S3 buckets and
// proxies. The first setting of a variable counts, as in the job.
func stagingEnvironment(given []byte, home string) (env []string) {
	seen := map[string]bool{}
	for entry := range strings.SplitSeq(string(given), "\x00") {
		name, _, ok := strings.Cut(entry, "=")
		if ok && !seen[name] && slices.Contains(staging.Variables, name) {
			seen[name] = true
			env = append(env, entry)
		}
	}
	if !seen["HOME"] && home != "" {
		env = append(env, "HOME="+home)
	}
	return env
}

// stagingCredentials returns the file of S3 credentials for the copies of a job; nil without one.
func (a *Agent) stagingCredentials(ctx context.Context, l *launch) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := a.session.Secrets(limited, &greylagv1.GetSecretsRequest{Job: l.spec.GetJob(), Attempt: l.spec.GetAttempt(), Granted: l.spec.GetGranted(), Staging: true})
	if lost := (*connect.Error)(nil); errors.As(err, &lost) && lost.Code() == connect.CodeDataLoss {
		return nil, failed(cluster.LaunchFailed, "%s", lost.Message())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: fetch secrets: %w", errPostpone, err)
	}
	for _, s := range response.GetSecrets() {
		if s.GetName() == credentialsSecret {
			return s.GetValue(), nil
		}
	}
	return nil, nil
}

// copyOut copies the files of a job that has ended from this node.
type copyOut struct {
	l      *launch
	ctx    context.Context // ends when the controllers no longer want it, or the daemon stops
	cancel context.CancelFunc
	limit  time.Duration

	result  cluster.CopyState
	failure string
}

// copiesOut reports whether the files of a task that has ended wait for the decision of the controllers.
func (t *task) copiesOut() bool {
	return len(t.spec.GetStageOut()) > 0 && t.Copied == cluster.NotCopied && t.End.Started != 0 && t.End.Cause != cluster.LaunchFailed && !t.isFenced()
}

// copyOutOf returns what is to be copied before a task is removed; nil: nothing. It runs in the loop.
func (a *Agent) copyOutOf(t *task) *copyOut {
	if t.Phase != reconcile.Ended || !t.copiesOut() || !a.specs[t.ID].GetCopyOut() || t.own() == nil {
		return nil
	}
	c := &copyOut{limit: stageOutLimit}
	c.l = &launch{id: t.ID, spec: t.spec, own: t.own(), node: a.cfg.Name, cpus: t.CPUs, waitingFor: &t.waitingFor, folders: a.foldersOf(t.ID).Folders}
	if lease := a.cfg.Lease; lease != nil {
		c.limit = max(min(c.limit, time.Until(lease.Expires)-stageOutMargin), time.Second)
	}
	c.ctx, c.cancel = context.WithCancel(a.reading)
	t.stopCopying = c.cancel
	return c
}

// stopUnwanted ends copies that the controllers no longer want: the job was cancelled. It runs in the loop.
func (a *Agent) stopUnwanted() {
	for id, t := range a.tasks {
		if t.stopCopying != nil && !a.specs[id].GetCopyOut() {
			t.stopCopying()
		}
	}
}

// copyOut copies the files of a job that has ended. The error is that of a daemon that stops: the next one copies them
// again.
func (a *Agent) copyOut(c *copyOut) error {
	defer c.cancel()
	ctx, cancel := context.WithTimeout(c.ctx, c.limit)
	defer cancel()
	answer, err := a.sendOutputs(ctx, c.l)
	switch {
	case a.reading.Err() != nil:
		return a.reading.Err()
	case c.ctx.Err() != nil: // not wanted any more
		return nil
	case ctx.Err() != nil:
		c.result, c.failure = cluster.CopyFailed, fmt.Sprintf("stage-out: not complete after %s", c.limit.Round(time.Second))
	case err != nil:
		c.result, c.failure = cluster.CopyFailed, fmt.Sprintf("stage-out: %v", err)
	case len(answer.Failures) > 0:
		var texts []string
		for _, f := range answer.Failures {
			texts = append(texts, f.Text)
		}
		c.result, c.failure = cluster.CopyFailed, "stage-out "+strings.Join(texts, "; ")
	default:
		c.result = cluster.Copied
		a.log.Info("output files copied", "job", c.l.id.Job, "attempt", c.l.id.Attempt, "bytes", answer.Bytes)
	}
	if c.failure != "" {
		a.log.Warn("output files were not copied", "job", c.l.id.Job, "attempt", c.l.id.Attempt, "err", c.failure)
	}
	return nil
}

// sendOutputs copies the files of StageOut, and then the output files if the job's own file system is not here.
func (a *Agent) sendOutputs(ctx context.Context, l *launch) (answer staging.Answer, err error) {
	copies, err := a.copiesOf(l, l.spec.GetStageOut())
	if err != nil {
		return answer, err
	}
	copies = append(copies, a.outputCopies(l)...)
	account := a.accounts.of(ctx, l.spec.GetUid(), l.spec.GetGid())
	owner := tasks.Owner{UID: l.spec.GetUid(), GID: l.spec.GetGid(), Groups: account.groups}
	for pause := minRetry; ; pause = min(2*pause, maxRetry) { // controllers that are briefly away
		answer, err = a.copyFiles(ctx, a.copyingOut, l, owner, staging.Order{Copies: copies})
		if !errors.Is(err, errPostpone) || ctx.Err() != nil {
			return answer, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// outputCopies returns the output files of a task that are in work folders: they are copied next to the first URL.
func (a *Agent) outputCopies(l *launch) (copies []staging.Copy) {
	parent := parentURL(l.spec.GetStageOut()[0].GetUrl())
	if parent == "" || len(l.folders) == 0 {
		return nil
	}
	_, stdout, stderr := files(l.spec, l.node)
	for _, file := range []string{stdout, stderr} {
		file = filepath.Clean(file)
		host, _, private := hostPath(file, l.folders, nil)
		if file == "." || !private || slices.ContainsFunc(copies, func(c staging.Copy) bool { return c.Path == path.Base(file) }) {
			continue
		}
		if _, err := os.Lstat(host); err != nil {
			continue // it was never opened, or the script has removed it
		}
		copies = append(copies, staging.Copy{Dir: filepath.Dir(host), Path: path.Base(host), URL: parent + path.Base(file)})
	}
	return copies
}

// parentURL returns the URL of the directory that contains a file or a directory, with a slash at its end; "" if it has none
// or if the URL has a query, which can be a signature of that file alone.
func parentURL(address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	rest = strings.TrimSuffix(rest, "/")
	last := strings.LastIndexByte(rest, '/')
	if strings.Contains(address, "?") || last < 0 || scheme == "rsync" && strings.Count(rest, "/") < 2 {
		return ""
	}
	return scheme + "://" + rest[:last+1]
}
