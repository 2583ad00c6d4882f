//go:build linux

// Package cgroup finds the control groups of this host (version 1 or 2), and reads, kills and
// removes the group of one task.
//
// It decides the location of a group from the kernel's mount table. For tasks it never creates a group and
// never sets a limit: the OCI runtime does both, from the specification of the task. Create is for programs of the
// daemon itself.
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

// ErrNoCgroups means that no usable control groups are mounted.
var ErrNoCgroups = errors.New("no control groups with memory and pids are mounted")

// ErrBadSlice means that a name does not follow systemd's rules for slices.
var ErrBadSlice = errors.New("not a valid systemd slice name")

// Hierarchy holds the mount points of this host's control groups.
type Hierarchy struct {
	unified string            // mount point of version 2; empty on version 1
	v1      map[string]string // mount point by controller
	hybrid  string            // mount point of version 2 on a host that also mounts version 1
}

// Detect reads the mount table of this process.
func Detect() (Hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Hierarchy{}, fmt.Errorf("find control groups: %w", err)
	}
	return Parse(string(data))
}

// Parse parses the text of /proc/PID/mountinfo (proc(5)). A hybrid host, which mounts both
// versions, counts as version 1, since its memory controller is there.
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

// controllers lists the version 1 controllers in which a task's group exists, if mounted.
func controllers() []string {
	return []string{"memory", "pids", "cpu", "cpuacct", "cpuset", "devices", "freezer", "blkio",
		"hugetlb", "net_cls", "net_prio", "perf_event", "rdma", "misc", "name=systemd"}
}

func isController(option string) bool { return slices.Contains(controllers(), option) }

// Unified reports whether this host uses version 2 only.
func (h Hierarchy) Unified() bool { return h.unified != "" }

// dir returns the directory of a group in a controller, or "" if the controller is not mounted.
func (h Hierarchy) dir(controller, group string) string {
	if h.Unified() {
		return filepath.Join(h.unified, group)
	}
	if h.v1[controller] == "" {
		return ""
	}
	return filepath.Join(h.v1[controller], group)
}

// dirs lists the directories of a group, without duplicates.
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
	if h.hybrid != "" { // OCI runtimes create the group there too
		list = append(list, filepath.Join(h.hybrid, group))
	}
	return list
}

// Mixed reports whether version 2 is mounted besides version 1 and has controllers of its own. crun
// refuses such hosts ("cgroups in hybrid mode not supported").
func (h Hierarchy) Mixed() bool {
	if h.hybrid == "" {
		return false
	}
	data, err := os.ReadFile(filepath.Join(h.hybrid, "cgroup.controllers"))
	return err == nil && strings.TrimSpace(string(data)) != ""
}

// HasSwapLimit reports whether the kernel can limit memory and swap together.
func (h Hierarchy) HasSwapLimit() bool {
	if h.Unified() {
		return true
	}
	_, err := os.Stat(filepath.Join(h.v1["memory"], "memory.memsw.limit_in_bytes"))
	return err == nil
}

// SlicePath returns the path of a systemd slice. Each dash is a level: "a-b.slice" is
// /a.slice/a-b.slice (systemd.slice(5)).
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
