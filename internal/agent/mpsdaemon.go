package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/cgroup"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// mpsTimeout is the timeout of one call of the control program.
	mpsTimeout = 30 * time.Second
	// mpsQuit is how many seconds the daemon may take to end its clients.
	mpsQuit = 5
	// mpsKill is how long the processes of a daemon may outlive SIGKILL.
	mpsKill = 10 * time.Second
	// maxMPSOutput limits the output of the control program that is kept, in bytes.
	maxMPSOutput = 64 << 10
)

// mpsSlice is the systemd slice of the daemons.
const mpsSlice = "greylag-jobs.slice"

// mpsDaemons starts and ends the MPS control daemons of the node. The directory of a GPU belongs to root. In it, the
// directories pipe, log and shm belong to the user of the daemon, and the file group names its control group.
type mpsDaemons struct {
	dir     string // one directory for each GPU, by index
	program string // nvidia-cuda-mps-control
	group   string // path of the parent of the daemons' control groups; "": they have none
	private bool   // tasks have a file system of their own: the daemon and its clients get a /dev/shm of their own

	mu    sync.Mutex
	locks map[int32]chan struct{} // by GPU: full while one caller starts or ends its daemon
}

// mpsClient is a task that uses MPS, on its GPU.
type mpsClient struct {
	device
	memory cluster.Bytes // of the GPU
	jobs   int32         // that may share it
	shared uint64        // size of the files of the daemon and its clients, in bytes; 0: half of the node's memory
	owner  tasks.Owner
}

// dirOf returns the directory of the daemon of a GPU.
func (m *mpsDaemons) dirOf(index int32) string { return filepath.Join(m.dir, "gpu"+number(index)) }

// pipes returns the directory by which clients find the daemon of a GPU.
func (m *mpsDaemons) pipes(index int32) string { return filepath.Join(m.dirOf(index), "pipe") }

// shm returns the directory that the daemon of a GPU and its clients have as /dev/shm.
func (m *mpsDaemons) shm(index int32) string { return filepath.Join(m.dirOf(index), "shm") }

// isolated reports whether the daemons get a file system of their own.
func (m *mpsDaemons) isolated() bool { return m.private && os.Geteuid() == 0 }

// limits returns the variables that give a client its share of the SMs and of the memory. In the
// environment of the daemon they are the defaults of all its clients.
func (c *mpsClient) limits() []string {
	return []string{
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" + number(100/max(c.jobs, 1)),
		fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", c.memory/cluster.Bytes(max(c.jobs, 1))/cluster.MiB),
	}
}

// lock waits until no other caller starts or ends the daemon of a GPU.
func (m *mpsDaemons) lock(ctx context.Context, index int32) (unlock func(), err error) {
	m.mu.Lock()
	if m.locks == nil {
		m.locks = map[int32]chan struct{}{}
	}
	held := m.locks[index]
	if held == nil {
		held = make(chan struct{}, 1)
		m.locks[index] = held
	}
	m.mu.Unlock()
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the MPS daemon of GPU %d: %w", index, ctx.Err())
	}
}

// start starts the daemon of a GPU unless it runs for the client's user.
func (m *mpsDaemons) start(ctx context.Context, c *mpsClient) error {
	unlock, err := m.lock(ctx, c.index)
	if err != nil {
		return err
	}
	defer unlock()
	dir := m.dirOf(c.index)
	if _, err := os.Lstat(dir); err == nil {
		owner, err := m.ownerOf(c.index)
		if err == nil && owner.UID == c.owner.UID && m.control(ctx, c.index, "get_server_list") == nil {
			return nil
		}
		if err := m.end(ctx, c.index); err != nil {
			return err
		}
	}
	if err := m.createDirs(c); err != nil {
		return errors.Join(err, m.remove(ctx, c.index))
	}
	env := append([]string{
		"PATH=" + searchPath(), "CUDA_VISIBLE_DEVICES=" + c.uuid,
		"CUDA_MPS_PIPE_DIRECTORY=" + m.pipes(c.index), "CUDA_MPS_LOG_DIRECTORY=" + filepath.Join(dir, "log"),
	}, c.limits()...)
	if err := m.launch(ctx, c, env); err != nil {
		return errors.Join(fmt.Errorf("start the MPS daemon of GPU %d: %w", c.index, err), m.remove(ctx, c.index))
	}
	return nil
}

// searchPath returns the PATH of the control program.
func searchPath() string { return cmp.Or(os.Getenv("PATH"), "/usr/sbin:/usr/bin:/sbin:/bin") }

// createDirs creates the directories of a daemon, which only its user can use. The user cannot replace them, since
// their parent belongs to root.
func (m *mpsDaemons) createDirs(c *mpsClient) error {
	dir := m.dirOf(c.index)
	err := os.MkdirAll(m.dir, 0o755)
	if err == nil {
		err = os.Mkdir(dir, 0o711)
	}
	if err == nil {
		err = os.Chmod(dir, 0o711) // whatever the umask
	}
	names := []string{"pipe", "log"}
	if err == nil && m.isolated() {
		names = append(names, "shm")
		size := "50%"
		if c.shared > 0 {
			size = strconv.FormatUint(c.shared, 10)
		}
		err = syscall.Mount("greylag-mps", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, "mode=0711,size="+size)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err == nil {
			err = os.Mkdir(path, 0o700)
		}
		if err == nil && os.Geteuid() == 0 {
			err = os.Lchown(path, int(c.owner.UID), int(c.owner.GID))
		}
	}
	if err != nil {
		return fmt.Errorf("directories of the MPS daemon: %w", err)
	}
	return nil
}

// ownerOf returns the user of the daemon of a GPU, without supplementary groups.
func (m *mpsDaemons) ownerOf(index int32) (tasks.Owner, error) {
	info, err := os.Lstat(m.pipes(index))
	if err != nil {
		return tasks.Owner{}, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	return tasks.Owner{UID: stat.Uid, GID: stat.Gid}, nil
}

// launch executes the program that starts the daemon, in a control group of its own: where systemd runs, in a scope,
// which a restart of gnoded does not end. It records the group first.
func (m *mpsDaemons) launch(ctx context.Context, c *mpsClient, env []string) error {
	run := mpsRun{command: []string{m.program, "-d"}, env: env, owner: c.owner}
	if m.isolated() {
		run.shm = m.shm(c.index)
	}
	if m.group == "" || os.Geteuid() != 0 {
		return run.execute(ctx)
	}
	hierarchy, err := cgroup.Detect()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("mps-gpu%d-%d", c.index, time.Now().UnixNano())
	group := hierarchy.Group(filepath.Join(m.group, name))
	if hasSystemd() {
		slice, err := cgroup.SlicePath(mpsSlice)
		if err != nil {
			return err
		}
		run.scope = "nvidia-" + name + ".scope"
		group = hierarchy.Group(filepath.Join(slice, run.scope))
	} else {
		run.group = &group
	}
	if err := os.WriteFile(filepath.Join(m.dirOf(c.index), "group"), []byte(group.Path()), 0o600); err != nil {
		return err
	}
	if run.group != nil {
		if err := group.Create(cgroup.Limits{}); err != nil {
			return err
		}
	}
	return run.execute(ctx)
}

// hasSystemd reports whether systemd manages the control groups of the node.
func hasSystemd() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

// groupOf returns the control group of the daemon of a GPU; nil if it has none.
func (m *mpsDaemons) groupOf(index int32) (*cgroup.Group, error) {
	path, err := os.ReadFile(filepath.Join(m.dirOf(index), "group"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(path) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	hierarchy, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	group := hierarchy.Group(string(path))
	return &group, nil
}

// control sends a command to the daemon of a GPU, as the user of the daemon.
func (m *mpsDaemons) control(ctx context.Context, index int32, command string) error {
	owner, err := m.ownerOf(index)
	if err != nil {
		return err
	}
	run := mpsRun{command: []string{m.program}, owner: owner, input: command + "\n",
		env: []string{"PATH=" + searchPath(), "CUDA_MPS_PIPE_DIRECTORY=" + m.pipes(index)}}
	group, err := m.groupOf(index)
	switch {
	case err != nil:
		return err
	case group != nil && strings.HasSuffix(group.Path(), ".scope"):
		run.scope = fmt.Sprintf("nvidia-mps-control-gpu%d-%d.scope", index, time.Now().UnixNano())
	default:
		run.group = group
	}
	return run.execute(ctx)
}

// end ends the daemon of a GPU, if it runs, and removes its directory. A daemon that does not quit is killed.
func (m *mpsDaemons) end(ctx context.Context, index int32) error {
	_ = m.control(ctx, index, fmt.Sprintf("quit -t %d", mpsQuit)) // fails if no daemon runs; remove kills one that ignores it
	return m.remove(ctx, index)
}

// remove kills the processes of a daemon and removes its directory. After an error the directory stays, so that
// another call finds the processes.
func (m *mpsDaemons) remove(ctx context.Context, index int32) error {
	dir := m.dirOf(index)
	group, err := m.groupOf(index)
	if err == nil && group != nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), mpsKill)
		defer cancel()
		err = group.Kill(limited)
		if err == nil && !strings.HasSuffix(group.Path(), ".scope") { // systemd removes a scope
			err = group.Remove()
		}
	}
	if err != nil {
		return fmt.Errorf("end the MPS daemon of GPU %d: %w", index, err)
	}
	if m.isolated() {
		err = syscall.Unmount(dir, syscall.MNT_DETACH|umountNoFollow)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrNotExist) {
			err = nil // not mounted
		}
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("remove the directory of the MPS daemon of GPU %d: %w", index, err)
	}
	return nil
}

// umountNoFollow is UMOUNT_NOFOLLOW of umount2(2).
const umountNoFollow = 8

// stop ends the daemon of a GPU if no task needs it.
func (m *mpsDaemons) stop(ctx context.Context, index int32, unused func() bool) error {
	unlock, err := m.lock(ctx, index)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Lstat(m.dirOf(index)); err == nil && unused() {
		return m.end(ctx, index)
	}
	return nil
}

// mpsRun is one call of the control program as a user.
type mpsRun struct {
	command, env []string
	owner        tasks.Owner
	input        string
	shm          string        // is mounted at /dev/shm in a mount namespace of the call; "": the node's
	scope        string        // systemd scope in which it runs; "": none
	group        *cgroup.Group // otherwise the control group; nil: that of gnoded
}

// line returns the command line. As root, it waits for a line of input, until its process is in its control group,
// and only then becomes the user's.
func (r *mpsRun) line() (list []string) {
	if os.Geteuid() != 0 {
		return r.command
	}
	if r.scope != "" {
		list = append(list, "systemd-run", "--scope", "--quiet", "--collect", "--slice="+mpsSlice, "--unit="+r.scope)
	}
	script := `read -r go && exec "$@"`
	if r.shm != "" {
		list = append(list, "unshare", "--mount", "--propagation=slave")
		script = `read -r go && mount --bind "$0" /dev/shm && exec "$@"`
	}
	groups := "--clear-groups"
	if len(r.owner.Groups) > 0 {
		var ids []string
		for _, id := range r.owner.Groups {
			ids = append(ids, strconv.FormatUint(uint64(id), 10))
		}
		groups = "--groups=" + strings.Join(ids, ",")
	}
	list = append(list, "sh", "-c", script, cmp.Or(r.shm, "sh"),
		"setpriv", fmt.Sprintf("--reuid=%d", r.owner.UID), fmt.Sprintf("--regid=%d", r.owner.GID), groups, "--")
	return append(list, r.command...)
}

// execute runs the program and waits for its end. A daemon that it starts may keep its output open.
func (r *mpsRun) execute(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, mpsTimeout)
	defer cancel()
	line, output := r.line(), &mpsOutput{}
	cmd := exec.CommandContext(limited, line[0], line[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = r.env, "/", time.Second
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", line[0], err)
	}
	if r.group != nil {
		err = r.group.Add(cmd.Process.Pid)
	}
	if err == nil {
		words := r.input
		if os.Geteuid() == 0 {
			words = "go\n" + words
		}
		_, _ = input.Write([]byte(words)) // fails if the program has ended: Wait returns why
	}
	_ = input.Close() // without a line the program is not executed
	if ended := cmd.Wait(); err == nil && !errors.Is(ended, exec.ErrWaitDelay) {
		err = ended
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", r.command[0], err, output.text())
	}
	return nil
}

// mpsOutput keeps the first bytes that are written to it.
type mpsOutput struct{ kept bytes.Buffer }

// Write drops what exceeds the limit.
func (b *mpsOutput) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), maxMPSOutput-b.kept.Len())])
	return len(p), nil
}

// text returns the begin of the output, on one line.
func (b *mpsOutput) text() string {
	words := b.kept.Bytes()
	return strings.Join(strings.Fields(string(words[:min(len(words), maxHookOutput)])), " ")
}
