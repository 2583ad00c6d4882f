//go:build linux

// Package cgroup finds the control groups of this host, of version 1 or 2, and
// reads, kills and removes the group of one task.
//
// It decides where a group lies from the kernel's list of mounts. It never makes
// a group and never sets a limit: the OCI runtime does both, from the spec.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoCgroups says that this host mounts no usable control groups.
var ErrNoCgroups = errors.New("no control groups with memory and pids are mounted")

// ErrBadSlice says that a systemd slice is not named as systemd names them.
var ErrBadSlice = errors.New("not the name of a systemd slice")

// Hierarchy is where the control groups of this host are mounted.
type Hierarchy struct {
	unified string            // mount point of version 2, empty on version 1
	v1      map[string]string // controller to mount point
	hybrid  string            // mount point of version 2 beside version 1
}

// Detect reads this process's mounts.
func Detect() (Hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Hierarchy{}, fmt.Errorf("find control groups: %w", err)
	}
	return Parse(string(data))
}

// Parse reads the text of /proc/PID/mountinfo (proc(5)). A hybrid host, which
// mounts both versions, counts as version 1, for its memory controller is there.
func Parse(mountinfo string) (Hierarchy, error) {
	h := Hierarchy{v1: map[string]string{}}
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			if h.unified == "" {
				h.unified = fields[4]
			}
		case "cgroup":
			for option := range strings.SplitSeq(kind[2], ",") {
				if _, known := h.v1[option]; !known && isController(option) {
					h.v1[option] = fields[4]
				}
			}
		}
	}
	switch {
	case h.v1["memory"] != "" && h.v1["pids"] != "":
		h.unified, h.hybrid = "", h.unified
	case h.unified == "":
		return Hierarchy{}, ErrNoCgroups
	}
	return h, nil
}

// controllers of version 1 that a task's group exists in, where mounted.
func controllers() []string {
	return []string{"memory", "pids", "cpu", "cpuacct", "cpuset", "devices", "freezer", "blkio",
		"hugetlb", "net_cls", "net_prio", "perf_event", "rdma", "misc", "name=systemd"}
}

func isController(option string) bool { return slices.Contains(controllers(), option) }

// Unified tells whether this host runs version 2 alone.
func (h Hierarchy) Unified() bool { return h.unified != "" }

// dir is the folder of a group in a controller, or empty where there is none.
func (h Hierarchy) dir(controller, group string) string {
	if h.Unified() {
		return filepath.Join(h.unified, group)
	}
	if h.v1[controller] == "" {
		return ""
	}
	return filepath.Join(h.v1[controller], group)
}

// dirs lists every folder of a group, each once.
func (h Hierarchy) dirs(group string) []string {
	if h.Unified() {
		return []string{h.dir("", group)}
	}
	var list []string
	for _, controller := range controllers() {
		if dir := h.dir(controller, group); dir != "" && !slices.Contains(list, dir) {
			list = append(list, dir)
		}
	}
	if h.hybrid != "" { // OCI runtimes make the group there as well
		list = append(list, filepath.Join(h.hybrid, group))
	}
	return list
}

// Mixed tells whether version 2 is mounted beside version 1 and has controllers
// of its own, which crun refuses to work with ("cgroups in hybrid mode not
// supported").
func (h Hierarchy) Mixed() bool {
	if h.hybrid == "" {
		return false
	}
	data, err := os.ReadFile(filepath.Join(h.hybrid, "cgroup.controllers"))
	return err == nil && strings.TrimSpace(string(data)) != ""
}

// HasSwapLimit tells whether memory and swap can be limited together.
func (h Hierarchy) HasSwapLimit() bool {
	if h.Unified() {
		return true
	}
	_, err := os.Stat(filepath.Join(h.v1["memory"], "memory.memsw.limit_in_bytes"))
	return err == nil
}

// SlicePath is the group of a systemd slice: each dash is a level, so that
// "a-b.slice" lies at /a.slice/a-b.slice (systemd.slice(5)).
func SlicePath(slice string) (string, error) {
	name, ok := strings.CutSuffix(slice, ".slice")
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%q: %w", slice, ErrBadSlice)
	}
	if name == "-" {
		return "/", nil
	}
	group, prefix := "/", ""
	for part := range strings.SplitSeq(name, "-") {
		if part == "" {
			return "", fmt.Errorf("%q: %w", slice, ErrBadSlice)
		}
		prefix += part
		group = path.Join(group, prefix+".slice")
		prefix += "-"
	}
	return group, nil
}
