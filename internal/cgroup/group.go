//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Group is the control group of one task. Its path begins with a slash and is the same in every
// controller.
type Group struct {
	hierarchy Hierarchy
	path      string
}

// Group returns the group with the given path, which need not exist.
func (h Hierarchy) Group(path string) Group {
	return Group{hierarchy: h, path: filepath.Join("/", path)}
}

// Path returns the path of the group, relative to each mount point.
func (g Group) Path() string { return g.path }

// Exists reports whether any controller has the group.
func (g Group) Exists() bool {
	for _, dir := range g.hierarchy.dirs(g.path) {
		if _, err := os.Stat(dir); err == nil {
			return true
		}
	}
	return false
}

// OOMKills returns the number of processes of the group that the kernel killed for memory.
func (g Group) OOMKills() (uint64, error) {
	if g.hierarchy.Unified() {
		return g.keyed("memory", "memory.events", "oom_kill")
	}
	return g.keyed("memory", "memory.oom_control", "oom_kill")
}

// PeakMemory returns the largest memory use of the group, in bytes. On version 2 it needs Linux
// 5.19; older kernels return fs.ErrNotExist.
func (g Group) PeakMemory() (uint64, error) {
	if g.hierarchy.Unified() {
		return g.number("memory", "memory.peak")
	}
	return g.number("memory", "memory.max_usage_in_bytes")
}

// Memory returns the present memory use of the group in bytes, page cache included.
func (g Group) Memory() (uint64, error) {
	if g.hierarchy.Unified() {
		return g.number("memory", "memory.current")
	}
	return g.number("memory", "memory.usage_in_bytes")
}

// CPUTime returns the CPU time that the group used, user and system.
func (g Group) CPUTime() (time.Duration, error) {
	if g.hierarchy.Unified() {
		microseconds, err := g.keyed("cpu", "cpu.stat", "usage_usec")
		return time.Duration(microseconds) * time.Microsecond, err
	}
	nanoseconds, err := g.number("cpuacct", "cpuacct.usage")
	return time.Duration(nanoseconds), err
}

// UserTime is what of CPUTime was user time; on version 1 the kernel's ticks tell.
func (g Group) UserTime() (time.Duration, error) {
	if g.hierarchy.Unified() {
		microseconds, err := g.keyed("cpu", "cpu.stat", "user_usec")
		return time.Duration(microseconds) * time.Microsecond, err
	}
	nanoseconds, err := g.number("cpuacct", "cpuacct.usage_user")
	return time.Duration(nanoseconds), err
}

// Processes lists the processes of the group and its subgroups. A group that does not exist has
// none.
func (g Group) Processes() ([]int, error) {
	root := g.hierarchy.dir("pids", g.path)
	var pids []int
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return err
		}
		pids = append(pids, parseProcesses(string(data))...)
		return nil
	})
	if gone(err) {
		return pids, nil
	}
	return pids, err
}

// Signal sends sig to every process of the group except those listed, and returns how many it
// signalled. It may miss processes that are forked meanwhile; Kill does not.
func (g Group) Signal(sig syscall.Signal, except ...int) (int, error) {
	pids, err := g.Processes()
	if err != nil {
		return 0, fmt.Errorf("signal group %s: %w", g.path, err)
	}
	pids = without(pids, except)
	return len(pids), signalAll(pids, sig, nil)
}

// Kill sends SIGKILL until no process of the group is left, apart from those listed, or ctx ends.
func (g Group) Kill(ctx context.Context, except ...int) error {
	pause := time.Millisecond
	for {
		pids, err := g.Processes()
		if err != nil {
			return fmt.Errorf("kill group %s: %w", g.path, err)
		}
		if len(without(pids, except)) == 0 {
			return nil
		}
		if err := signalAll(pids, syscall.SIGKILL, except); err != nil {
			return fmt.Errorf("kill group %s: %w", g.path, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kill group %s: %d processes do not end: %w", g.path, len(pids), ctx.Err())
		case <-time.After(pause):
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
}

// Remove removes the group and its subgroups from every controller. They must have no processes.
// Removing a group that does not exist is no error.
func (g Group) Remove() error {
	var failed error
	for _, dir := range g.hierarchy.dirs(g.path) {
		if err := removeTree(dir); err != nil && !gone(err) {
			failed = errors.Join(failed, fmt.Errorf("remove group: %w", err))
		}
	}
	return failed
}

// removeTree removes directories bottom up; the kernel removes the control files with them.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil && !gone(err) {
				return err
			}
		}
	}
	return syscall.Rmdir(dir)
}

func (g Group) number(controller, file string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(g.hierarchy.dir(controller, g.path), file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}

func (g Group) keyed(controller, file, key string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(g.hierarchy.dir(controller, g.path), file))
	if err != nil {
		return 0, err
	}
	return parseKeyed(string(data), key)
}

// gone reports whether err means that the group no longer exists.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}
