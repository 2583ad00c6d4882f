//go:build linux

// Package private runs a private containerd with its own socket, root and state in one directory,
// separate from the host's. Tests, the end-to-end harness and the demo use it; a production node
// uses the distribution's.
//
// It decides only how to start, kill and clean up that process. It never speaks containerd's
// protocol.
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
	// ErrMissing means that containerd or its shim is not installed.
	ErrMissing = errors.New("containerd is not installed")
	// ErrNotReady means that containerd did not start; the message has the end of its log.
	ErrNotReady = errors.New("containerd does not come up")
)

// Options configure Start; the zero value is the distribution's containerd with its metadata on the
// disk of the directory.
type Options struct {
	// Binary is the containerd to run; empty: the one on PATH. Its directory comes first on the
	// PATH of the shim.
	Binary string
	// Tmpfs keeps root and state in memory, which saves 16 fdatasync calls for each container.
	Tmpfs bool
}

// Daemon is a running containerd.
type Daemon struct {
	dir     string
	options Options
	process *exec.Cmd
	ended   chan struct{} // closed when the process has been reaped
}

// maxSocket is the size of a path in sockaddr_un (unix(7)), including the NUL.
const maxSocket = 108

// Start creates dir and runs containerd in it. The path must be short, since that of the socket is
// limited. It returns when the socket answers.
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

// Address returns the path of the socket.
func (d *Daemon) Address() string { return filepath.Join(d.dir, "c.sock") }

// StateDir returns the directory of containerd's bundles.
func (d *Daemon) StateDir() string { return filepath.Join(d.dir, "state") }

// Log returns the path of containerd's log.
func (d *Daemon) Log() string { return filepath.Join(d.dir, "log") }

// prepare creates the directories and the configuration.
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

// Dir creates a directory for a daemon and for files of its tasks: socket paths in it are short,
// programs in it may be executed, and tasks see it, unlike /tmp. /run does not always suffice:
// systemd mounts it noexec on some systems. Users other than root get one in the usual temporary
// directory.
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

// mount makes the directory a mount that is in no clone of the host's file system; otherwise a
// clone of another node on this machine would prevent its removal. Images are in a mount of their
// own below it, since overlayfs refuses layers in a mount that cannot be cloned.
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
	// Under systemd, / is shared, and so are binds from it: mounts below would be propagated and
	// stay.
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

// root returns the directory of containerd's images and snapshots.
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

// Restart runs containerd again on its state. It must not be running.
func (d *Daemon) Restart() error {
	log, err := os.OpenFile(d.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("containerd log: %w", err)
	}
	defer log.Close()
	process := exec.Command(d.options.Binary, "--config", d.configFile(), "--log-level", "warn")
	process.Stdout, process.Stderr = log, log
	process.Env = append(os.Environ(), "PATH="+filepath.Dir(d.options.Binary)+":"+os.Getenv("PATH"))
	// A process group of its own: a ^C for this process must not race with Stop.
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := process.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = process.Wait() // its log has its exit status
	}()
	d.process, d.ended = process, ended
	return d.awaitSocket(2 * time.Minute)
}

// awaitSocket dials until containerd answers; it listens when it is ready.
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

// Kill kills containerd with SIGKILL and waits for its end. Tasks and their shims continue.
func (d *Daemon) Kill() error { return d.end(syscall.SIGKILL, 10*time.Second) }

// end sends sig and waits; after the limit it kills.
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

// Stop ends containerd and all its shims and tasks, removes their control groups and mounts, and
// deletes the directory.
func (d *Daemon) Stop() error {
	failed := d.end(syscall.SIGTERM, 5*time.Second)
	failed = errors.Join(failed, d.killShims(), unmountBelow(d.dir))
	return errors.Join(failed, os.RemoveAll(d.dir))
}
