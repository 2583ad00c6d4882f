//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Limits bound what the processes of a group use together; 0: any amount.
type Limits struct {
	Memory uint64 // bytes, page cache included
	CPUs   int
}

// limiting lists the controllers in which Create makes a group.
func limiting() []string { return []string{"memory", "cpu", "pids"} }

// cpuPeriod is the interval in µs over which the kernel limits CPU time.
const cpuPeriod = 100_000

// Create makes the group, and those above it as far as they do not exist, and sets its limits. After an error nothing of
// the group is left, unless it existed before and has processes.
func (g Group) Create(l Limits) error {
	err := g.hierarchy.enable(filepath.Dir(g.path))
	for _, controller := range limiting() {
		if dir := g.hierarchy.dir(controller, g.path); err == nil && dir != "" {
			err = os.MkdirAll(dir, 0o755)
		}
	}
	if err == nil {
		err = g.limit(l)
	}
	if err != nil {
		_ = g.Remove() // the error says more
		return fmt.Errorf("create group %s: %w", g.path, err)
	}
	return nil
}

// enable makes a group and those above it in version 2, with the controllers that limit the groups in it.
func (h Hierarchy) enable(path string) error {
	if !h.Unified() {
		return nil
	}
	dir := h.unified
	for _, name := range strings.Split(path, "/") {
		dir = filepath.Join(dir, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for _, controller := range limiting() {
			if err := writeFile(dir, "cgroup.subtree_control", "+"+controller); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g Group) limit(l Limits) error {
	unified := g.hierarchy.Unified()
	memory, cpu := g.hierarchy.dir("memory", g.path), g.hierarchy.dir("cpu", g.path)
	bytes, quota := strconv.FormatUint(l.Memory, 10), strconv.Itoa(l.CPUs*cpuPeriod)
	var failed error
	switch {
	case l.Memory == 0:
	case unified:
		failed = writeFile(memory, "memory.max", bytes)
	default:
		failed = writeFile(memory, "memory.limit_in_bytes", bytes)
	}
	switch {
	case l.CPUs == 0 || cpu == "":
	case unified:
		failed = errors.Join(failed, writeFile(cpu, "cpu.max", quota+" "+strconv.Itoa(cpuPeriod)))
	default:
		failed = errors.Join(failed, writeFile(cpu, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)), writeFile(cpu, "cpu.cfs_quota_us", quota))
	}
	return failed
}

// Add moves a process into a group that Create has made.
func (g Group) Add(pid int) error {
	written := map[string]bool{}
	for _, controller := range limiting() {
		dir := g.hierarchy.dir(controller, g.path)
		if dir == "" || written[dir] {
			continue
		}
		written[dir] = true
		if err := writeFile(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("add process %d to group %s: %w", pid, g.path, err)
		}
	}
	return nil
}

// Children returns the groups directly below this one; none if it does not exist.
func (g Group) Children() (list []Group, err error) {
	entries, err := os.ReadDir(g.hierarchy.dir("pids", g.path))
	if gone(err) {
		return nil, nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			list = append(list, g.hierarchy.Group(filepath.Join(g.path, entry.Name())))
		}
	}
	return list, err
}

// writeFile writes a control file, which the kernel has made.
func writeFile(dir, name, value string) error {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}
