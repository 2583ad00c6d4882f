//go:build linux

// Package simgpu creates character devices that stand in for GPUs, so that on a machine without
// GPUs the kernel still decides what a task can open.
//
// It chooses device numbers that are harmless to open, distinct, and outside what OCI runtimes
// allow every container (null, zero, full, random, urandom, tty, ptys and /dev/net/tun). It never
// describes a GPU: package gpu does.
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

// Max is the number of distinct devices, over all directories of a machine.
const Max = 48

var (
	// ErrPermission means that creating device nodes needs root.
	ErrPermission = errors.New("creating simulated GPUs needs root (mknod)")
	// ErrTooMany means that this machine has too few suitable devices.
	ErrTooMany = errors.New("this machine has too few devices for that many simulated GPUs")
)

// Device is one simulated GPU.
type Device struct {
	Index        int
	Path         string // of the node on the host
	Major, Minor uint32
}

// candidates lists device numbers, best first: unused virtual terminals, then drivers that do
// nothing until a privileged call. Any number of terminals can be opened by any user whom the mode
// of the node allows, and opening one does not change the screen. Numbers below 16 may be in use.
func candidates() []Device {
	var list []Device
	for minor := uint32(63); minor > 63-Max; minor-- { // 63 is the highest
		list = append(list, Device{Major: 4, Minor: minor})
	}
	// fuse, loop-control, btrfs-control, autofs, vga_arbiter, userfaultfd and vsock, as this kernel
	// numbers them; missing ones are left out.
	for _, name := range []string{"fuse", "loop-control", "btrfs-control", "autofs", "vga_arbiter", "userfaultfd", "vsock"} {
		if minor, ok := miscMinor(name); ok {
			list = append(list, Device{Major: 10, Minor: minor})
		}
	}
	return list
}

// miscMinor returns the number of a driver in /proc/misc.
func miscMinor(name string) (uint32, bool) {
	data, err := os.ReadFile("/proc/misc")
	if err != nil {
		return 0, false
	}
	return parseMisc(string(data), name)
}

// parseMisc parses lines of the form "minor name".
func parseMisc(text, name string) (uint32, bool) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == name {
			minor, err := strconv.ParseUint(fields[0], 10, 20) // minors have 20 bits
			return uint32(minor), err == nil
		}
	}
	return 0, false
}

// Dir returns where the nodes for dir lie; dir must exist. It is dir itself, or the directory of
// the same name below /dev/greylag if the file system of dir has no devices (nodev), as /run and
// /tmp under systemd. Code that removes dir must also call [Remove].
func Dir(dir string) string {
	var mount unix.Statfs_t
	if err := unix.Statfs(dir, &mount); err == nil && mount.Flags&unix.ST_NODEV != 0 {
		return filepath.Join(elsewhere, dir)
	}
	return dir
}

// elsewhere is the parent of the nodes of directories that cannot hold any.
const elsewhere = "/dev/greylag"

// Remove removes the nodes that [Dir] placed outside dir, and those of all directories below dir.
func Remove(dir string) error {
	place := filepath.Join(elsewhere, dir)
	if err := os.RemoveAll(place); err != nil {
		return fmt.Errorf("simulated GPUs: %w", err)
	}
	for place = filepath.Dir(place); len(place) >= len(elsewhere); place = filepath.Dir(place) {
		if os.Remove(place) != nil {
			break // it holds other nodes, or nothing was there
		}
	}
	return nil
}

// Create creates n nodes, DIR/nvidia0 and up ([Dir]), with mode 0666 as the NVIDIA driver does, and
// checks that each can be opened. A machine always gives the same numbers. Existing nodes are
// replaced.
func Create(dir string, n int) ([]Device, error) { return CreateFrom(dir, 0, n) }

// CreateFrom is Create for one of several simulated nodes on one machine. It skips the first
// devices, which other nodes have, so that the kernel distinguishes the nodes' GPUs. Names and
// indexes still begin at 0.
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
		if opens && usable > first { // the next node replaces it
			devices = append(devices, device)
		}
	}
	if len(devices) < n {
		return nil, fmt.Errorf("%d requested after %d, %d found: %w", n, first, len(devices), ErrTooMany)
	}
	return devices, nil
}

// makeNode creates the node and reports whether its device can be opened here; if not, it removes
// the node.
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
	if err := os.Chmod(device.Path, 0o666); err != nil { // independent of the umask
		return false, fmt.Errorf("simulated GPU: %w", err)
	}
	fd, err := unix.Open(device.Path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, os.Remove(device.Path)
	}
	return true, unix.Close(fd)
}
