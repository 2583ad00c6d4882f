//go:build linux

// Package simgpu makes character devices that stand in for GPUs, so that what a
// task can and cannot open is decided by the kernel on a machine without one.
//
// It decides which of the host's device numbers are harmless to open, distinct,
// and outside what OCI runtimes allow every container (null, zero, full,
// random, urandom, tty, ptys, and /dev/net/tun). It never says what a GPU is:
// package gpu does.
package simgpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Max is the number of distinct devices, over all folders of a machine.
const Max = 48

var (
	// ErrPermission says that making device nodes needs root.
	ErrPermission = errors.New("making simulated GPUs needs root (mknod)")
	// ErrTooMany says that this machine has not as many suitable devices.
	ErrTooMany = errors.New("not that many simulated GPUs on this machine")
)

// Device is one stand-in.
type Device struct {
	Index        int
	Path         string // of its node on the host
	Major, Minor uint32
}

// candidates, best first. Virtual terminals that nobody looks at: any number
// can be opened, by anyone whom the node's mode allows, and opening one changes
// nothing on the screen (numbers below 16 may be in use). Then drivers that everyone may open and that do
// nothing until they are told to by a privileged call.
func candidates() []Device {
	var list []Device
	for minor := uint32(63); minor > 63-Max; minor-- { // 63 is the highest
		list = append(list, Device{Major: 4, Minor: minor})
	}
	// fuse, loop-control, btrfs-control, autofs, vga_arbiter, userfaultfd, vsock,
	// as this kernel numbers them; those that it has not are left out.
	for _, name := range []string{"fuse", "loop-control", "btrfs-control", "autofs", "vga_arbiter", "userfaultfd", "vsock"} {
		if minor, ok := miscMinor(name); ok {
			list = append(list, Device{Major: 10, Minor: minor})
		}
	}
	return list
}

// miscMinor looks a driver up in /proc/misc.
func miscMinor(name string) (uint32, bool) {
	data, err := os.ReadFile("/proc/misc")
	if err != nil {
		return 0, false
	}
	return parseMisc(string(data), name)
}

// parseMisc reads lines of "minor name".
func parseMisc(text, name string) (uint32, bool) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == name {
			minor, err := strconv.ParseUint(fields[0], 10, 20) // minors have 20 bits
			return uint32(minor), err == nil
		}
	}
	return 0, false
}

// Dir is where the nodes for dir lie, which must exist: in dir, or in the folder of the
// same name below /dev/greylag where dir's file system has no devices (nodev), as /run
// and /tmp where systemd mounts them. Whoever removes dir calls [Remove] as well.
func Dir(dir string) string {
	var mount unix.Statfs_t
	if err := unix.Statfs(dir, &mount); err == nil && mount.Flags&unix.ST_NODEV != 0 {
		return filepath.Join(elsewhere, dir)
	}
	return dir
}

// elsewhere is above the nodes of folders that can have none.
const elsewhere = "/dev/greylag"

// Remove removes what [Dir] says may lie outside of dir, and of all folders below it.
func Remove(dir string) error {
	place := filepath.Join(elsewhere, dir)
	if err := os.RemoveAll(place); err != nil {
		return fmt.Errorf("simulated GPUs: %w", err)
	}
	for place = filepath.Dir(place); len(place) >= len(elsewhere); place = filepath.Dir(place) {
		if os.Remove(place) != nil {
			break // others' lie there, or nothing did
		}
	}
	return nil
}

// Create makes n nodes, DIR/nvidia0 and up ([Dir]), mode 0666 as the NVIDIA driver makes
// its own, and proves each by opening it. The same machine gives the same
// numbers every time; nodes that are there are replaced.
func Create(dir string, n int) ([]Device, error) { return CreateFrom(dir, 0, n) }

// CreateFrom is Create for one of several simulated nodes on one machine: it
// leaves out the first devices, which another node has, so that the kernel
// tells the nodes' GPUs apart. Names and indexes begin at 0 all the same.
func CreateFrom(dir string, first, n int) ([]Device, error) {
	if n < 0 || first < 0 || first+n > Max {
		return nil, fmt.Errorf("%d after %d: %w, at most %d", n, first, ErrTooMany, Max)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("simulated GPUs: %w", err)
	}
	dir = Dir(dir)
	if err := os.MkdirAll(dir, 0o755); errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%s: %w", dir, ErrPermission)
	} else if err != nil {
		return nil, fmt.Errorf("simulated GPUs: %w", err)
	}
	devices, usable := make([]Device, 0, n), 0
	for _, device := range candidates() {
		if len(devices) == n {
			break
		}
		device.Index = len(devices)
		device.Path = filepath.Join(dir, "nvidia"+strconv.Itoa(device.Index))
		opens, err := makeNode(device)
		if err != nil {
			return nil, err
		}
		if opens {
			usable++
		}
		if opens && usable > first { // the earlier ones' node is replaced by the next
			devices = append(devices, device)
		}
	}
	if len(devices) < n {
		return nil, fmt.Errorf("%d wanted after %d, %d found: %w", n, first, len(devices), ErrTooMany)
	}
	return devices, nil
}

// makeNode makes the node and tells whether its device can be opened here. One
// that cannot is removed again.
func makeNode(device Device) (opens bool, err error) {
	if err := os.Remove(device.Path); err != nil && !os.IsNotExist(err) {
		return false, fmt.Errorf("simulated GPU: %w", err)
	}
	err = unix.Mknod(device.Path, unix.S_IFCHR|0o666, int(unix.Mkdev(device.Major, device.Minor)))
	if errors.Is(err, unix.EPERM) {
		return false, fmt.Errorf("%s: %w", device.Path, ErrPermission)
	}
	if err != nil {
		return false, fmt.Errorf("simulated GPU: mknod %s: %w", device.Path, err)
	}
	if err := os.Chmod(device.Path, 0o666); err != nil { // whatever our umask
		return false, fmt.Errorf("simulated GPU: %w", err)
	}
	fd, err := unix.Open(device.Path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, os.Remove(device.Path)
	}
	return true, unix.Close(fd)
}
