package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// Jobs that share a GPU under MPS are clients of one control daemon for that GPU, which runs as their user. It is
// started before the first of them and ended after the last. Its directory identifies it, so that it outlives gnoded.

// mpsTimeout is the timeout of one call of the control program, and mpsQuit how many seconds the daemon may take to
// end its clients.
const (
	mpsTimeout = 30 * time.Second
	mpsQuit    = 5
)

// mpsDaemons starts and ends the MPS control daemons of the node.
type mpsDaemons struct {
	dir     string // one directory for each GPU, by index
	program string // nvidia-cuda-mps-control
	mu      sync.Mutex
}

// mpsClient is a task that uses MPS, on its GPU.
type mpsClient struct {
	device
	memory cluster.Bytes // of the GPU
	jobs   int32         // that may share it
	owner  tasks.Owner
}

// dirOf returns the directory of the daemon of a GPU.
func (m *mpsDaemons) dirOf(index int32) string { return filepath.Join(m.dir, "gpu"+number(index)) }

// pipes returns the directory by which clients find the daemon of a GPU.
func (m *mpsDaemons) pipes(index int32) string { return filepath.Join(m.dirOf(index), "pipe") }

// limits returns the variables that give a client its share of the compute units and of the memory. In the
// environment of the daemon they are the defaults of all its clients.
func (c *mpsClient) limits() []string {
	return []string{
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" + number(100/max(c.jobs, 1)),
		fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", c.memory/cluster.Bytes(max(c.jobs, 1))/cluster.MiB),
	}
}

// start starts the daemon of a GPU unless it runs for the client's user.
func (m *mpsDaemons) start(ctx context.Context, c *mpsClient) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := m.dirOf(c.index)
	if info, err := os.Stat(dir); err == nil {
		if info.Sys().(*syscall.Stat_t).Uid == c.owner.UID && m.control(ctx, c.index, "get_server_list") == nil {
			return nil
		}
		m.end(ctx, c.index)
	}
	if err := m.createDirs(c); err != nil {
		return err
	}
	env := append([]string{
		"PATH=" + cmp.Or(os.Getenv("PATH"), "/usr/sbin:/usr/bin:/sbin:/bin"), "CUDA_VISIBLE_DEVICES=" + c.uuid,
		"CUDA_MPS_PIPE_DIRECTORY=" + m.pipes(c.index), "CUDA_MPS_LOG_DIRECTORY=" + filepath.Join(dir, "log"),
	}, c.limits()...)
	if err := runMPS(ctx, m.startCommand(c), env, c.owner, ""); err != nil {
		return errors.Join(fmt.Errorf("start the MPS daemon of GPU %d: %w", c.index, err), os.RemoveAll(dir))
	}
	return nil
}

// createDirs creates the directories of a daemon, which only its user can use.
func (m *mpsDaemons) createDirs(c *mpsClient) error {
	err := os.MkdirAll(m.dir, 0o755)
	dir := m.dirOf(c.index)
	for _, path := range []string{dir, filepath.Join(dir, "pipe"), filepath.Join(dir, "log")} {
		if err == nil {
			err = os.Mkdir(path, 0o700)
		}
		if err == nil && os.Geteuid() == 0 {
			err = os.Chown(path, int(c.owner.UID), int(c.owner.GID))
		}
	}
	if err != nil {
		return fmt.Errorf("directories of the MPS daemon: %w", err)
	}
	return nil
}

// startCommand returns the command that starts the daemon: where systemd runs, in a scope of its own, which a restart
// of gnoded does not end.
func (m *mpsDaemons) startCommand(c *mpsClient) []string {
	command := []string{m.program, "-d"}
	if _, err := os.Stat("/run/systemd/system"); err != nil || os.Geteuid() != 0 {
		return command
	}
	return append([]string{"systemd-run", "--scope", "--quiet", "--collect", "--slice=greylag-jobs.slice",
		fmt.Sprintf("--uid=%d", c.owner.UID), fmt.Sprintf("--gid=%d", c.owner.GID)}, command...)
}

// control sends a command to the daemon of a GPU.
func (m *mpsDaemons) control(ctx context.Context, index int32, command string) error {
	env := []string{"PATH=" + os.Getenv("PATH"), "CUDA_MPS_PIPE_DIRECTORY=" + m.pipes(index)}
	return runMPS(ctx, []string{m.program}, env, tasks.Owner{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}, command+"\n")
}

// end ends the daemon of a GPU, if it runs, and removes its directory.
func (m *mpsDaemons) end(ctx context.Context, index int32) {
	_ = m.control(ctx, index, fmt.Sprintf("quit -t %d", mpsQuit)) // fails if no daemon runs
	_ = os.RemoveAll(m.dirOf(index))
}

// stop ends the daemon of a GPU if no task needs it.
func (m *mpsDaemons) stop(ctx context.Context, index int32, unused func() bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := os.Stat(m.dirOf(index)); err == nil && unused() {
		m.end(ctx, index)
	}
}

// runMPS runs a command as a user. A daemon that it starts may keep its output open.
func runMPS(ctx context.Context, command, env []string, owner tasks.Owner, input string) error {
	limited, cancel := context.WithTimeout(ctx, mpsTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, command[0], command[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.WaitDelay = env, "/", strings.NewReader(input), time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 && command[0] != "systemd-run" {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.UID, Gid: owner.GID, Groups: owner.Groups}
	}
	words, err := cmd.CombinedOutput()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return fmt.Errorf("%s: %w: %s", command[0], err, strings.Join(strings.Fields(string(words[:min(len(words), maxHookOutput)])), " "))
}

// addMPS makes a task a client of the MPS daemon of its GPU.
func (a *Agent) addMPS(ctx context.Context, spec *tasks.Spec, l *launch) error {
	if !l.spec.GetMps() || len(l.gpus) != 1 {
		return nil
	}
	l.setWaitingFor("the MPS daemon of its GPU does not run yet")
	c := &mpsClient{device: l.gpus[0], memory: l.gpuMemory, jobs: l.spec.GetGpuShare(), owner: spec.Owner}
	if err := a.mps.start(ctx, c); err != nil {
		return failed(cluster.NodeFault, "%v: install %s on the node, or submit the job without :mps", err, filepath.Base(a.mps.program))
	}
	pipes := a.mps.pipes(c.index)
	if a.cfg.Isolated {
		spec.MPS, pipes = pipes, tasks.MPSDir
	}
	spec.Env = append(append(spec.Env, "CUDA_MPS_PIPE_DIRECTORY="+pipes), c.limits()...)
	return nil
}

// sharer is what the end of a task on a shared GPU needs from the state of the loop.
type sharer struct {
	uuids  []string
	gpus   []int32 // their indices
	shares bool
	mps    bool
}

// sharerOf returns what the end of a task needs. It runs in the loop.
func (a *Agent) sharerOf(t *task) sharer {
	s := sharer{uuids: a.uuidsOf(t), shares: t.spec.GetGpuShare() > 0, mps: t.spec.GetMps()}
	if own := t.own(); own != nil {
		s.gpus = own.GetGpus()
	}
	return s
}

// isShared reports whether another task has a GPU, or is to start there. It runs in the loop.
func (a *Agent) isShared(t *task, uuid string) bool {
	for _, other := range a.tasks {
		if other != t && other.Phase < reconcile.Clean && !other.leftGPU && slices.Contains(a.uuidsOf(other), uuid) {
			return true
		}
	}
	return false
}

// leaveGPU returns the GPUs of a task whose processes are gone, except those that other tasks have. Of these it ends
// the MPS daemon.
func (a *Agent) leaveGPU(ctx context.Context, t *task, s sharer) (own []string, err error) {
	if !s.shares {
		return s.uuids, nil
	}
	unshared := func() []string {
		var list []string
		err = a.ask(ctx, func() {
			t.leftGPU = true
			list = slices.DeleteFunc(slices.Clone(s.uuids), func(uuid string) bool { return a.isShared(t, uuid) })
		})
		return list
	}
	if own = unshared(); s.mps && len(own) > 0 && len(s.gpus) == 1 {
		a.mps.stop(ctx, s.gpus[0], func() bool { own = unshared(); return err == nil && len(own) > 0 })
	}
	return own, err
}

// endUnusedMPS ends the MPS daemons that an earlier gnoded left without tasks.
func (a *Agent) endUnusedMPS() {
	entries, err := os.ReadDir(a.mps.dir)
	if err != nil {
		return // there are none
	}
	for _, e := range entries {
		index, err := strconv.ParseInt(strings.TrimPrefix(e.Name(), "gpu"), 10, 32)
		if err != nil || slices.ContainsFunc(a.mpsGPUs(), func(g int32) bool { return g == int32(index) }) {
			continue
		}
		a.workers.Go(func() {
			limited, cancel := context.WithTimeout(context.Background(), 2*mpsTimeout)
			defer cancel()
			a.mps.stop(limited, int32(index), func() bool {
				used := false
				err := a.ask(limited, func() { used = slices.Contains(a.mpsGPUs(), int32(index)) })
				return err == nil && !used
			})
		})
	}
}

// mpsGPUs lists the GPUs of tasks that use MPS. It runs in the loop.
func (a *Agent) mpsGPUs() (list []int32) {
	for _, t := range a.tasks {
		if t.Phase < reconcile.Clean && !t.leftGPU && t.spec.GetMps() {
			list = append(list, a.sharerOf(t).gpus...)
		}
	}
	return list
}
