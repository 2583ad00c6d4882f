//go:build linux

// Package private runs a private containerd: its own socket, root and state in
// one folder, nothing shared with the host's. Tests, the end-to-end harness
// and the demo use it; a node in production uses the distribution's own.
//
// It decides only how to start, kill and clean up that one process and what it
// left. It never speaks containerd's protocol.
package private

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

var (
	// ErrMissing says that containerd or its shim is not installed.
	ErrMissing = errors.New("containerd is not installed")
	// ErrNotReady says that it did not come up; the message has its log's end.
	ErrNotReady = errors.New("containerd does not come up")
)

// Options are for Start; the zero value is the distribution's containerd with
// its metadata on the disk that the folder is on.
type Options struct {
	// Binary is the containerd to run; empty: the one on PATH. Its folder
	// comes first on the PATH of the shim.
	Binary string
	// Tmpfs keeps root and state in memory: 16 fdatasync less per container.
	Tmpfs bool
}

// Daemon is a running containerd.
type Daemon struct {
	dir     string
	options Options
	process *exec.Cmd
	ended   chan struct{} // closed when process has been waited for
}

// maxSocket is what a sockaddr_un holds (unix(7)), its NUL included.
const maxSocket = 108

// Start runs containerd in dir, which is made. The path must be short: the
// socket's is bounded. It returns when the socket answers.
func Start(dir string, options Options) (*Daemon, error) {
	if options.Binary == "" {
		options.Binary = "containerd"
	}
	binary, err := exec.LookPath(options.Binary)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", options.Binary, ErrMissing)
	}
	options.Binary = binary
	d := &Daemon{dir: dir, options: options}
	if len(d.Address()+".ttrpc") >= maxSocket {
		return nil, fmt.Errorf("%s: path too long for a socket: %w", dir, ErrNotReady)
	}
	if err := d.prepare(); err != nil {
		return nil, err
	}
	if err := d.Restart(); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// Address is the path of the socket.
func (d *Daemon) Address() string { return filepath.Join(d.dir, "c.sock") }

// StateDir is where containerd keeps its bundles.
func (d *Daemon) StateDir() string { return filepath.Join(d.dir, "state") }

// Log is the path of what containerd wrote.
func (d *Daemon) Log() string { return filepath.Join(d.dir, "log") }

// prepare makes the folders and the configuration.
func (d *Daemon) prepare() error {
	if err := os.MkdirAll(d.dir, 0o711); err != nil {
		return fmt.Errorf("containerd folder: %w", err)
	}
	if err := d.mount(); err != nil {
		return fmt.Errorf("containerd folder: %w", err)
	}
	if err := os.WriteFile(d.configFile(), []byte(d.config()), 0o600); err != nil {
		return fmt.Errorf("containerd configuration: %w", err)
	}
	return nil
}

// Dir makes a folder for a daemon and for what its tasks use: paths of sockets in it are
// short, programs in it may be run, and tasks see it, as they do not see what is in /tmp.
// /run is not always such a place: systemd mounts it without the right to run programs
// on some systems. Users other than root get one in the usual folder for what is passing.
func Dir(prefix string) (string, error) {
	base := ""
	if os.Geteuid() == 0 {
		base = "/run"
		const noexec = 0x8 // ST_NOEXEC of statfs(2)
		var fs syscall.Statfs_t
		if err := syscall.Statfs(base, &fs); err != nil || fs.Flags&noexec != 0 {
			base = "/var/lib"
		}
	}
	return os.MkdirTemp(base, prefix)
}

// mount makes the folder a mount that is in no clone of the host's file system:
// where another node on this machine had one, the folder could not be removed.
// Below it, the images are in a mount of their own, since overlayfs refuses
// layers in one that cannot be cloned.
func (d *Daemon) mount() error {
	if isMountPoint(d.dir) {
		return nil
	}
	source, kind, flags, data := d.dir, "", uintptr(syscall.MS_BIND), ""
	if d.options.Tmpfs {
		source, kind, flags, data = "greylag-test", "tmpfs", 0, "mode=0711"
	}
	if err := syscall.Mount(source, d.dir, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", d.dir, err)
	}
	// Where systemd runs, / is shared, and so is what is bound from it: what is mounted below would
	// be mounted beneath as well, and stay there.
	if err := syscall.Mount("", d.dir, "", syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep what is below %s to it: %w", d.dir, err)
	}
	if err := os.Mkdir(d.root(), 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := syscall.Mount(d.root(), d.root(), "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", d.root(), err)
	}
	if err := syscall.Mount("", d.dir, "", syscall.MS_UNBINDABLE, ""); err != nil {
		return fmt.Errorf("keep %s out of clones: %w", d.dir, err)
	}
	return nil
}

// root is where containerd keeps images and snapshots.
func (d *Daemon) root() string { return filepath.Join(d.dir, "root") }

func (d *Daemon) configFile() string { return filepath.Join(d.dir, "config.toml") }

// config is version 2, which containerd 1.6 to 2.x read.
func (d *Daemon) config() string {
	disabled := []string{
		"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images",
		"io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
		"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
		"io.containerd.internal.v1.restart", "io.containerd.nri.v1.nri",
		"io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
	}
	return fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["%s"]
[grpc]
address = %q
[plugins."io.containerd.internal.v1.opt"]
path = %q
`, d.root(), d.StateDir(), strings.Join(disabled, `", "`), d.Address(), filepath.Join(d.dir, "opt"))
}

// Restart runs containerd again over what it left. It must not be running.
func (d *Daemon) Restart() error {
	log, err := os.OpenFile(d.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("containerd log: %w", err)
	}
	defer log.Close()
	process := exec.Command(d.options.Binary, "--config", d.configFile(), "--log-level", "warn")
	process.Stdout, process.Stderr = log, log
	process.Env = append(os.Environ(), "PATH="+filepath.Dir(d.options.Binary)+":"+os.Getenv("PATH"))
	// Its own process group: a ^C meant for us must not race with Stop.
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := process.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = process.Wait() // how it ended is in its log
	}()
	d.process, d.ended = process, ended
	return d.awaitSocket(2 * time.Minute)
}

// awaitSocket dials until somebody answers; containerd listens when it is ready.
func (d *Daemon) awaitSocket(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		if conn, err := net.Dial("unix", d.Address()); err == nil {
			return conn.Close()
		}
		select {
		case <-d.ended:
			return fmt.Errorf("%w: %s", ErrNotReady, d.logEnd())
		case <-ctx.Done():
			return fmt.Errorf("%w within %s: %s", ErrNotReady, limit, d.logEnd())
		case <-ticker.C:
		}
	}
}

func (d *Daemon) logEnd() string {
	data, err := os.ReadFile(d.Log())
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

// Kill ends containerd with SIGKILL and returns when it has ended. Tasks and
// their shims go on.
func (d *Daemon) Kill() error { return d.end(syscall.SIGKILL, 10*time.Second) }

// end sends sig and waits; past the limit it kills.
func (d *Daemon) end(sig syscall.Signal, limit time.Duration) error {
	if d.process == nil {
		return nil
	}
	if err := d.process.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop containerd: %w", err)
	}
	select {
	case <-d.ended:
	case <-time.After(limit):
		if err := d.process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill containerd: %w", err)
		}
		<-d.ended
	}
	d.process = nil
	return nil
}

// Stop ends containerd, every shim and task it left, their control groups and
// mounts, and removes the folder.
func (d *Daemon) Stop() error {
	failed := d.end(syscall.SIGTERM, 5*time.Second)
	failed = errors.Join(failed, d.killShims(), unmountBelow(d.dir))
	return errors.Join(failed, os.RemoveAll(d.dir))
}
