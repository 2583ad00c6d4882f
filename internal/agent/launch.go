package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// startTimeout is the timeout of the runtime's start of one task.
	startTimeout = 2 * time.Minute
	// postponeDelay is how long a start waits for a service that is briefly away, such as the runtime's
	// daemon during an upgrade; patience limits the total.
	postponeDelay = time.Second
	maxPostponed  = 2 * time.Minute
	// waitsAfter is the time after which the node reports what a start waits for.
	waitsAfter = 2 * time.Second
)

// errPostpone means that a start did not begin for a transient reason.
var errPostpone = errors.New("cannot start yet")

// launch holds all that the start of a task needs from the state of the loop.
type launch struct {
	id        reconcile.ID
	spec      *greylagv1.WantedTask
	own       *greylagv1.NodeAllocation
	node      string
	cluster   string
	cpus      []int
	gpus      []device        // in the order of the allocation
	pinned    bool            // the task sees no other GPUs
	gpuMemory cluster.Bytes   // of the first GPU
	ready     bool            // the runtime worked at the last check
	hook      *hook           // prolog to run; nil: none
	tmpDir    string          // its scratch space; "": none
	others    <-chan struct{} // closed when the other nodes of the job are ready; nil: it need not wait
	folders   []workFolder    // directories of the task at other paths of the node

	credentials string // path on this node of the secret with S3 credentials; "": none

	limit      time.Duration           // for everything before the runtime's start, including retries, but not for copies of files
	deadline   time.Time               // end of limit
	waitingFor *atomic.Pointer[string] // what the start waits for, as a sentence; shared with the task
	asked      time.Time               // when the runtime was called to start it
}

// setWaitingFor records what the start waits for.
func (l *launch) setWaitingFor(what string) { l.waitingFor.Store(&what) }

// device identifies a GPU to a task.
type device struct {
	index int32
	uuid  string
}

// start begins to start a task in a goroutine. It can be abandoned until the runtime is called.
func (a *Agent) start(ctx context.Context, t *task) {
	l, err := a.launchOf(t)
	if err != nil {
		t.work = reconcile.NoWork
		a.endFailed(t, err)
		return
	}
	if t.waiting.IsZero() {
		t.waiting = time.Now()
	}
	l.deadline = t.waiting.Add(l.limit)
	whole, cancel := context.WithCancel(ctx)
	t.abandon = cancel
	a.workers.Go(func() {
		err := a.launch(whole, l)
		abandoned := whole.Err() != nil
		cancel()
		a.post(func() {
			if a.tasks[t.ID] == t {
				a.started(ctx, t, l.asked, err, abandoned)
			}
		})
	})
}

// started handles the result of a start, in the loop. The start time is when the runtime was
// called, since a short task has ended by the time of the answer.
func (a *Agent) started(ctx context.Context, t *task, asked time.Time, err error, abandoned bool) {
	t.work = reconcile.NoWork
	t.abandon = func() {}
	switch {
	case err == nil:
		t.Phase = reconcile.Started
		t.sampledAt = time.Now()
		t.End.Started = cluster.InstantOf(asked)
		a.log.Info("task started", "job", t.ID.Job, "attempt", t.ID.Attempt, "user", t.spec.GetUser(), "uid", t.spec.GetUid())
		a.dirty[t.ID] = true
		nudge(a.reports)
		a.updateMembers(t)
		a.watchTask(ctx, t)
	case abandoned:
		// The task stays Accepted: a stop removes it, otherwise the next daemon starts it.
	case errors.Is(err, errPostpone) && time.Since(t.waiting) < maxPostponed:
		t.notBefore = cluster.InstantOf(time.Now().Add(postponeDelay))
		if why := strings.TrimPrefix(err.Error(), errPostpone.Error()+": "); why != t.postponed {
			t.postponed = why
			a.log.Warn("task waits", "job", t.ID.Job, "attempt", t.ID.Attempt, "err", err)
		}
	default:
		a.endFailed(t, err)
	}
}

// endFailed ends a task that could not be started.
func (a *Agent) endFailed(t *task, err error) {
	cause, message := causeOf(err)
	a.log.Warn("cannot start task", "job", t.ID.Job, "attempt", t.ID.Attempt, "cause", cause.String(), "err", err)
	if errors.Is(err, tasks.ErrUnavailable) || errors.Is(err, tasks.ErrUnfit) {
		a.setFault("runtime", err.Error())
	}
	var h *hookError
	if errors.As(err, &h) {
		a.setProblem(t.ID.Job, problem{source: causeProlog, reason: h.Error()})
	}
	a.end(t, cluster.Task{Cause: cause, Message: message, Ended: cluster.InstantOf(time.Now())})
}

// launchOf collects the input of a start.
func (a *Agent) launchOf(t *task) (*launch, error) {
	l := &launch{
		id: t.ID, spec: t.spec, own: t.own(), node: a.cfg.Name, cluster: cmp.Or(a.cluster, a.identity.Cluster),
		cpus: t.CPUs, pinned: a.cfg.Device != nil, ready: a.faults["runtime"] == "", hook: a.hookOf(t), tmpDir: a.tmpDirOf(t), limit: a.cfg.LaunchTimeout, waitingFor: &t.waitingFor,
	}
	if a.specs[t.ID].GetWaits() {
		if t.others == nil {
			t.others = make(chan struct{})
		}
		l.others = t.others
	}
	if a.cfg.Lease != nil && a.cfg.Lease.Block != nil && t.spec.GetUid() == 0 {
		return nil, failed(cluster.LaunchFailed, "root's jobs do not run on leased nodes, where they could read the credentials of the instance: submit it as another user")
	}
	if l.own == nil {
		return nil, failed(cluster.NodeFault, "the task's allocation does not name this node")
	}
	for _, index := range l.own.GetGpus() {
		if index < 0 || int(index) >= len(a.inventory.Devices) {
			return nil, failed(cluster.NodeFault, "GPU %d was allocated, but this node has %d", index, len(a.inventory.Devices))
		}
		l.gpus = append(l.gpus, device{index: index, uuid: a.inventory.Devices[index].UUID})
	}
	if len(l.gpus) > 0 {
		l.gpuMemory = a.inventory.Devices[l.gpus[0].index].Memory
	}
	return l, nil
}

// launch starts the task: steps that may take long or fail come first, the runtime last. ctx limits
// the steps before the runtime. Copies of files may take as long as the job has time.
func (a *Agent) launch(ctx context.Context, l *launch) error {
	limited, cancel := context.WithDeadline(ctx, l.deadline)
	defer cancel()
	spec, err := a.prepare(limited, l)
	if err == nil && len(l.spec.GetStageIn()) > 0 {
		limited = ctx
		err = a.stageIn(ctx, l, spec.Owner)
	}
	if err == nil {
		err = waitForOthers(limited, l)
	}
	if err == nil {
		l.setWaitingFor("other tasks are started first")
		select {
		case a.slots <- struct{}{}:
			defer func() { <-a.slots }()
		case <-limited.Done():
			err = limited.Err()
		}
	}
	l.asked = time.Now()
	switch {
	case err != nil && errors.Is(limited.Err(), context.DeadlineExceeded):
		return failed(cluster.NodeFault, "not started within %s (launch_timeout): %s", l.limit, *l.waitingFor.Load())
	case err != nil:
		return err
	}
	// From here on the start must not be interrupted: an interrupted call could have started the
	// task.
	starting, stop := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer stop()
	return a.runtime.Start(starting, spec)
}

// waitForOthers waits until the other nodes of the job are ready, if the task has to.
func waitForOthers(ctx context.Context, l *launch) error {
	if l.others == nil {
		return nil
	}
	what := "copying the input files"
	if from := l.spec.GetResume(); from != nil {
		what = fmt.Sprintf("verifying checkpoint %d", from.GetNumber())
	}
	l.setWaitingFor("other nodes are still " + what)
	select {
	case <-l.others:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prepare fetches the inputs of the task and runs the prolog.
func (a *Agent) prepare(ctx context.Context, l *launch) (spec tasks.Spec, err error) {
	if !l.ready {
		l.setWaitingFor("the container runtime does not answer")
		if err := a.runtimeReady(ctx); err != nil {
			return spec, fmt.Errorf("%w: %w", errPostpone, err)
		}
		a.post(func() { a.applyRuntimeStatus(nil) })
	}
	if spec, err = a.specify(ctx, l); err != nil {
		return spec, err
	}
	l.setWaitingFor("the prolog is still running")
	if err := a.runHook(ctx, a.cfg.Prolog, l.hook); err != nil {
		return spec, err
	}
	a.clearHookFailure(causeProlog, a.cfg.Prolog, l.hook)
	return spec, a.prepareCheckpoint(ctx, l, &spec)
}

// specify builds the runtime's specification of the task.
func (a *Agent) specify(ctx context.Context, l *launch) (tasks.Spec, error) {
	w := l.spec
	if err := a.createScratch(ctx, l); err != nil {
		return tasks.Spec{}, err
	}
	l.setWaitingFor("the job script has not been fetched yet")
	var script []byte
	if !w.GetIdle() {
		var err error
		if script, err = a.blob(ctx, w.GetScript()); err != nil {
			return tasks.Spec{}, err
		}
	}
	given, err := a.blob(ctx, w.GetEnvironment())
	if err != nil {
		return tasks.Spec{}, err
	}
	account := a.accounts.of(ctx, w.GetUid(), w.GetGid())
	spec := tasks.Spec{
		ID: taskID(l.id), User: w.GetUser(),
		Owner:  tasks.Owner{UID: w.GetUid(), GID: w.GetGid(), Groups: account.groups},
		Script: script, ScriptArgs: w.GetArgs(), Env: environment(l, account, given),
		WorkDir: w.GetWorkDir(), Append: w.GetAppend(),
		CPUSet: cgroup.FormatCPUs(l.cpus), CPUs: int(l.own.GetCpus()), Memory: uint64(max(l.own.GetMemory(), 0)),
		PidsLimit: a.host.tasksFor(int(l.own.GetCpus())),
		Labels:    map[string]string{"greylag/node": l.node, "greylag/user": w.GetUser(), labelGranted: strconv.FormatUint(w.GetGranted(), 10)},
	}
	spec.Stdin, spec.Stdout, spec.Stderr = files(w, l.node)
	if a.cfg.Device != nil {
		for _, gpu := range l.gpus {
			spec.Devices = append(spec.Devices, a.cfg.Device(gpu.index))
		}
	}
	socket, inside := a.addCommands(&spec, l)
	if err := a.addSecrets(ctx, &spec, l, socket, inside); err != nil {
		return tasks.Spec{}, err
	}
	if err := a.addMembers(&spec, l, socket, inside); err != nil {
		return tasks.Spec{}, err
	}
	if err := a.addMPS(ctx, &spec, l); err != nil {
		return tasks.Spec{}, err
	}
	if err := a.addWorkFolders(l, &spec); err != nil {
		return tasks.Spec{}, err
	}
	a.addMounts(&spec, account.home, l)
	if w.GetIdle() { // its script runs on another node; steps see the same files
		spec.Hold, spec.ScriptArgs, spec.WorkDir = true, nil, "/"
		spec.Stdin, spec.Stdout, spec.Stderr = "", "", ""
	}
	if w.GetImage() == "" {
		return spec, nil
	}
	l.setWaitingFor("image " + w.GetImage() + " has not been pulled yet")
	request := tasks.FetchRequest{Reference: w.GetImage(), Owner: spec.Owner, Logins: logins(spec.Env, account.home)}
	spec.Image, err = a.image(ctx, l, request)
	return spec, err
}

// logins lists where a user may keep registry credentials, as podman and docker do:
// REGISTRY_AUTH_FILE, DOCKER_CONFIG, else the home directory.
func logins(env []string, home string) []string {
	var files []string
	for _, setting := range env {
		if path, ok := strings.CutPrefix(setting, "REGISTRY_AUTH_FILE="); ok && strings.HasPrefix(path, "/") {
			files = append(files, path)
		}
		if dir, ok := strings.CutPrefix(setting, "DOCKER_CONFIG="); ok && strings.HasPrefix(dir, "/") {
			files = append(files, filepath.Join(dir, "config.json"))
		}
	}
	if strings.HasPrefix(home, "/") {
		files = append(files, filepath.Join(home, ".config/containers/auth.json"), filepath.Join(home, ".docker/config.json"))
	}
	return files
}

// image makes an image present. It retries a failing registry until ctx ends.
func (a *Agent) image(ctx context.Context, l *launch, request tasks.FetchRequest) (string, error) {
	images, ok := a.runtime.(tasks.Images)
	if !ok {
		return "", failed(cluster.LaunchFailed, "this node's runtime has no images")
	}
	for pause := minRetry; ; pause = min(2*pause, maxRetry) {
		name, err := images.Fetch(ctx, request)
		switch {
		case err == nil:
			return name, nil
		case ctx.Err() != nil:
			return "", err
		case errors.Is(err, tasks.ErrUnavailable):
			return "", fmt.Errorf("%w: %w", errPostpone, err)
		case !errors.Is(err, tasks.ErrRegistry):
			return "", failed(cluster.ImageFailed, "%v", err)
		}
		l.setWaitingFor(err.Error())
		again := pause/2 + rand.N(pause/2) // spreads the retries of a job's nodes
		a.log.Warn("image waits", "job", l.id.Job, "attempt", l.id.Attempt, "err", err, "retry_in", again)
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(again):
		}
	}
}

// files returns the paths that a task reads and writes, in its own file system.
func files(w *greylagv1.WantedTask, node string) (stdin, stdout, stderr string) {
	place := func(pattern string) string {
		path := expand(pattern, w, node)
		if !strings.HasPrefix(path, "/") {
			path = strings.TrimSuffix(w.GetWorkDir(), "/") + "/" + path
		}
		return path
	}
	pattern := w.GetOutput()
	if pattern == "" {
		pattern = defaultOutput(w)
	}
	stdout = place(pattern)
	if w.GetError() != "" {
		stderr = place(w.GetError())
	}
	if w.GetInput() != "" {
		stdin = place(w.GetInput())
	}
	return stdin, stdout, stderr
}
