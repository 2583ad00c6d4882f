//go:build linux

// Package shim is what containerd executes for each task of this node instead of its own
// containerd-shim-runc-v2. It answers the two calls that containerd makes by executing a program:
// where the task's daemon listens (Start), and the removal of what an ended daemon left (Delete).
// At the start of a node it removes the sockets that killed daemons left (Sweep). Package service
// is the daemon.
//
// It decides where the daemon listens and what lies in a task's bundle. It knows nothing of jobs
// and never talks to gnoded. It imports little, since each task executes it twice: linking the
// daemon's protocol makes the start of the program half as long again.
package shim

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Daemon is the name of the daemon's program, in the directory of the program that starts it.
const Daemon = "gshimd"

// ListenerFD is the descriptor of the daemon's socket.
const ListenerFD = 3

// SocketDir holds the sockets of all tasks of this machine. Its path is short enough for socket
// addresses, wherever containerd and gnoded keep their state.
const SocketDir = "/run/greylag/shim"

// addressFile is where containerd before 2.0 finds a task's daemon after a restart.
const addressFile = "address"

// LogFile is the file in a bundle with the messages of the OCI runtime, one JSON object a line.
const LogFile = "log.json"

// killed is the exit status of a task whose daemon ended: Delete kills the rest of the task.
const killed = 128 + int(syscall.SIGKILL)

var (
	// ErrUsage means that the program was not called as containerd calls a shim.
	ErrUsage = errors.New("not called as containerd calls a shim")
	// ErrLeft means that part of a task could not be removed.
	ErrLeft = errors.New("cannot remove the whole task")
)

// Call is a call of containerd, from its command line (containerd's runtime v2 shim authoring
// guide, section Commands).
type Call struct {
	Action    string // "start" or "delete"; the daemon's is "serve"
	Namespace string
	ID        string // of the container
	Address   string // of containerd's own socket
}

// ParseCall parses a command line. It skips unknown options with their values, since later versions
// of containerd may add some.
func ParseCall(args []string) (Call, error) {
	var call Call
	if len(args) > 0 {
		call.Action = args[len(args)-1]
	}
	for i := 0; i+1 < len(args); i++ {
		var field *string
		switch args[i] {
		case "-namespace":
			field = &call.Namespace
		case "-id":
			field = &call.ID
		case "-address":
			field = &call.Address
		default:
			continue
		}
		i++
		*field = args[i]
	}
	if call.Namespace == "" || call.ID == "" || strings.ContainsRune(call.ID, '/') {
		return Call{}, fmt.Errorf("%w: want -namespace, -id and start or delete", ErrUsage)
	}
	return call, nil
}

// Socket returns the path at which the task's daemon listens.
func (c Call) Socket() string {
	name := fnv.New128a()
	_, _ = name.Write([]byte(c.Address + "\x00" + c.Namespace + "\x00" + c.ID)) // never fails
	return filepath.Join(SocketDir, hex.EncodeToString(name.Sum(nil)))
}

// Start starts the task's daemon, program, in bundle and returns its address. It does not wait for
// the daemon: clients that connect do.
func (c Call) Start(program, bundle string) (address string, err error) {
	// The parent also holds the socket of gauthd, which every user may open.
	err = os.MkdirAll(filepath.Dir(SocketDir), 0o755)
	if err == nil {
		err = os.MkdirAll(SocketDir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("socket: %w", err)
	}
	path := c.Socket()
	file, err := relisten(path)
	if err != nil {
		return "", fmt.Errorf("socket: %w", err)
	}
	defer file.Close()
	address = "unix://" + path
	err = writeWhole(filepath.Join(bundle, addressFile), []byte(address))
	if err == nil {
		// The argument makes the task visible in a list of processes.
		daemon := exec.Command(program, "-namespace", c.Namespace, "-address", c.Address, "-id", c.ID, "serve")
		daemon.Dir = bundle
		daemon.ExtraFiles = []*os.File{file}
		daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		err = daemon.Start()
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("daemon of the task: %w", err), os.Remove(path))
	}
	return address, nil
}

// backlog limits pending connections; only containerd connects.
const backlog = 16

// relisten creates the socket and replaces that of a killed daemon; containerd never starts a
// second one. It holds the lock that Sweep needs.
func relisten(path string) (*os.File, error) {
	lock, err := lockSockets(filepath.Dir(path), unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer unix.Close(lock)
	_ = os.Remove(path)
	return listen(path)
}

// listen creates the socket by system calls: package net takes as long to initialize as the rest of
// the program.
func listen(path string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Hold marks this process as the daemon of the bundle until it ends.
func Hold(bundle string) error {
	fd, err := unix.Open(filepath.Join(bundle, addressFile), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}) // fd stays open
	}
	if err != nil {
		return fmt.Errorf("hold the bundle: %w", err)
	}
	return nil
}

// endDaemon kills the daemon of the bundle if it runs, and the OCI runtime that it started.
func endDaemon(bundle string) error {
	fd, err := unix.Open(filepath.Join(bundle, addressFile), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	daemon := holder(fd)
	if daemon == 0 {
		return nil
	}
	process, err := os.FindProcess(daemon)
	if err != nil || holder(fd) != daemon { // checked again: from here on the process ID cannot be reused
		return err
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return unix.FcntlFlock(uintptr(fd), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
}

// holder returns the process that holds the file, or 0.
func holder(fd int) int {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK {
		return 0
	}
	return int(lock.Pid)
}

// Delete removes what a daemon left of its task and returns containerd's
// containerd.task.v2.DeleteResponse, encoded. The daemon was killed, or containerd gave up an
// unreachable one. After a normal deletion nothing is left.
func (c Call) Delete(bundle string) ([]byte, error) {
	err := os.Remove(c.Socket())
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = endDaemon(bundle)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: daemon: %w", ErrLeft, err)
	}
	oci, known, err := ReadOCI(bundle)
	if err == nil && known {
		err = oci.Delete(c.ID, bundle)
	}
	if err != nil {
		return nil, err
	}
	return deleteResponse(killed, time.Now()), nil
}

// deleteResponse encodes fields 2, exit_status, and 3, exited_at in whole seconds.
func deleteResponse(status int, at time.Time) []byte {
	exited := appendVarint([]byte{1 << 3}, uint64(at.Unix()))
	answer := appendVarint([]byte{2 << 3}, uint64(status))
	return append(append(answer, 3<<3|2, byte(len(exited))), exited...)
}

func appendVarint(data []byte, n uint64) []byte {
	for ; n >= 0x80; n >>= 7 {
		data = append(data, byte(n)|0x80)
	}
	return append(data, byte(n))
}

// OCI describes how a task's containers are created: the OCI runtime and its common options.
type OCI struct {
	Program string // runc or crun
	Root    string // directory of its containers
	Systemd bool   // systemd creates the control groups
}

// ociFile is the file of a bundle that holds its OCI, from before the container is created until it
// is deleted.
const ociFile = "oci"

// Write stores the OCI in the bundle.
func (o OCI) Write(bundle string) error {
	systemd := "no"
	if o.Systemd {
		systemd = "yes"
	}
	if strings.ContainsRune(o.Program+o.Root, '\n') {
		return fmt.Errorf("OCI runtime %q at %q: a line feed in a path: %w", o.Program, o.Root, ErrUsage)
	}
	return writeWhole(filepath.Join(bundle, ociFile), []byte(o.Program+"\n"+o.Root+"\n"+systemd))
}

// ReadOCI reads what Write stored. known is false if there is no container to delete.
func ReadOCI(bundle string) (oci OCI, known bool, err error) {
	data, err := os.ReadFile(filepath.Join(bundle, ociFile))
	if errors.Is(err, fs.ErrNotExist) {
		return OCI{}, false, nil
	}
	if err != nil {
		return OCI{}, false, fmt.Errorf("%w: %w", ErrLeft, err)
	}
	lines := strings.Split(string(data), "\n")
	if len(lines) != 3 {
		return OCI{}, false, fmt.Errorf("%w: %s in %s has %d lines, not 3", ErrLeft, ociFile, bundle, len(lines))
	}
	return OCI{Program: lines[0], Root: lines[1], Systemd: lines[2] == "yes"}, true, nil
}

// Command returns a call of the OCI runtime with its common options before args. Its messages go to
// LogFile, except those written before it has parsed that option.
func (o OCI) Command(bundle string, args ...string) *exec.Cmd {
	common := []string{"--root", o.Root, "--log", filepath.Join(bundle, LogFile), "--log-format", "json"}
	if o.Systemd {
		common = append(common, "--systemd-cgroup")
	}
	command := exec.Command(o.Program, append(common, args...)...)
	command.Dir = bundle
	for _, word := range os.Environ() {
		// With this variable the OCI runtime would report the task to systemd as if it were
		// containerd.
		if !strings.HasPrefix(word, "NOTIFY_SOCKET=") {
			command.Env = append(command.Env, word)
		}
	}
	return command
}

// Delete removes the container and its file system in any state, and the OCI in the bundle. It may
// be repeated.
func (o OCI) Delete(id, bundle string) error {
	if said, err := o.Command(bundle, "delete", "--force", id).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: OCI runtime delete: %w: %s", ErrLeft, err, bytes.TrimSpace(said))
	}
	rootfs := filepath.Join(bundle, "rootfs")
	for {
		err := unix.Unmount(rootfs, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
			break // not mounted
		}
		if err != nil {
			return fmt.Errorf("%w: unmount %s: %w", ErrLeft, rootfs, err)
		}
	}
	if err := os.Remove(filepath.Join(bundle, ociFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrLeft, err)
	}
	return nil
}

// writeWhole writes the whole file or nothing.
func writeWhole(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
