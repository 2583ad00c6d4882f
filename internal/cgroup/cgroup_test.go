//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const (
	v1Mounts = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	v2Mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
)

func TestParse(t *testing.T) {
	h, err := Parse(v1Mounts)
	if err != nil || h.Unified() || h.hybrid != "/sys/fs/cgroup/unified" {
		t.Fatalf("%+v %v", h, err)
	}
	want := []string{"/sys/fs/cgroup/memory/g/j1-a1", "/sys/fs/cgroup/pids/g/j1-a1", "/sys/fs/cgroup/cpu,cpuacct/g/j1-a1", "/sys/fs/cgroup/systemd/g/j1-a1", "/sys/fs/cgroup/unified/g/j1-a1"}
	if got := h.dirs("/g/j1-a1"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	h, err = Parse(v2Mounts)
	if err != nil || !h.Unified() || !h.HasSwapLimit() || h.Mixed() {
		t.Fatalf("%+v %v", h, err)
	}
	if got := h.dirs("/g/j1-a1"); !slices.Equal(got, []string{"/sys/fs/cgroup/g/j1-a1"}) {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"", "x", "1 2 3 - cgroup2", "22 27 0:21 / /proc rw - proc proc rw\n"} {
		if _, err := Parse(bad); !errors.Is(err, ErrNoCgroups) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestSlicePath(t *testing.T) {
	for slice, want := range map[string]string{
		"greylag-jobs.slice": "/greylag.slice/greylag-jobs.slice", "a.slice": "/a.slice", "-.slice": "/",
		"a-b-c.slice": "/a.slice/a-b.slice/a-b-c.slice",
		"a":           "", ".slice": "", "a--b.slice": "", "-a.slice": "", "a/b.slice": "",
	} {
		got, err := SlicePath(slice)
		if got != want || (want == "") != errors.Is(err, ErrBadSlice) {
			t.Errorf("%s: %q %v", slice, got, err)
		}
	}
}

// TestUnifiedFiles parses files of a version 2 group as the kernel writes them.
func TestUnifiedFiles(t *testing.T) {
	root := t.TempDir()
	group := Hierarchy{unified: root}.Group("greylag.slice/j1.scope")
	dir := filepath.Join(root, group.Path())
	if err := os.MkdirAll(filepath.Join(dir, "step"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"memory.events":  "low 0\nhigh 0\nmax 23\noom 3\noom_kill 2\noom_group_kill 0\n",
		"memory.peak":    "33554432\n",
		"memory.current": "4096\n",
		"cpu.stat":       "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n",
		"cgroup.procs":   "4000001\n0\n", "step/cgroup.procs": "4000002\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kills, err1 := group.OOMKills()
	peak, err2 := group.PeakMemory()
	now, err3 := group.Memory()
	cpu, err4 := group.CPUTime()
	pids, err5 := group.Processes()
	user, err6 := group.UserTime()
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(kills, peak, now, cpu, user, pids); got != "2 33554432 4096 1.5s 1s [4000001 4000002]" {
		t.Error(got)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte("low x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := group.OOMKills(); !errors.Is(err, ErrBadFile) {
		t.Errorf("damaged: %v", err)
	}
}

// TestRealGroup kills and removes a control group of the host.
func TestRealGroup(t *testing.T) {
	hierarchy, err := Detect()
	if os.Geteuid() != 0 || err != nil {
		t.Skip("needs root and control groups: ", err)
	}
	group := hierarchy.Group(fmt.Sprintf("greylag-cgroup-test-%d", os.Getpid()))
	for _, dir := range hierarchy.dirs(group.Path()) {
		if err := os.MkdirAll(filepath.Join(dir, "below"), 0o755); err != nil {
			t.Skip("needs control groups that can be written: ", err)
		}
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	procs := filepath.Join(hierarchy.dir("pids", group.Path()), "below", "cgroup.procs")
	if err := os.WriteFile(procs, fmt.Appendln(nil, child.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := group.Kill(ctx, child.Process.Pid); err != nil {
		t.Errorf("kill all but one: %v", err)
	}
	if pids, err := group.Processes(); err != nil || len(pids) != 1 {
		t.Errorf("%v %v", pids, err)
	}
	if err := group.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("not killed")
	}
	if err := group.Remove(); err != nil || group.Exists() {
		t.Errorf("remove: %v", err)
	}
	if err := errors.Join(group.Remove(), group.Kill(ctx)); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// TestCreate makes a control group of the host with limits, and moves a process into it.
func TestCreate(t *testing.T) {
	hierarchy, err := Detect()
	if os.Geteuid() != 0 || err != nil {
		t.Skip("needs root and control groups: ", err)
	}
	parent := hierarchy.Group(fmt.Sprintf("greylag-create-test-%d", os.Getpid()))
	group := hierarchy.Group(parent.Path() + "/child")
	t.Cleanup(func() { _ = parent.Remove() })
	if err := group.Create(Limits{Memory: 64 << 20, CPUs: 2}); err != nil {
		t.Skip("needs control groups that can be written: ", err)
	}
	memory := "memory.limit_in_bytes"
	if hierarchy.Unified() {
		memory = "memory.max"
	} else if quota, err := group.number("cpu", "cpu.cfs_quota_us"); err != nil || quota != 200_000 {
		t.Errorf("CPU time of 100 ms: %d µs, %v; want 200,000", quota, err)
	}
	if limit, err := group.number("memory", memory); err != nil || limit != 64<<20 {
		t.Errorf("limit of the memory: %d, %v", limit, err)
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := group.Add(child.Process.Pid); err != nil {
		t.Error(err)
	}
	if pids, err := group.Processes(); err != nil || !slices.Equal(pids, []int{child.Process.Pid}) {
		t.Errorf("%v %v", pids, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	children, err := parent.Children()
	if err != nil || len(children) != 1 || children[0].Path() != group.Path() {
		t.Errorf("children: %v %v", children, err)
	}
	if err := group.Remove(); err != nil || group.Exists() {
		t.Errorf("remove: %v", err)
	}
	unwritable := Hierarchy{unified: "/proc/1"}.Group("x")
	if err := unwritable.Create(Limits{}); err == nil {
		t.Error("a group was made where none can be")
	}
}

func FuzzParseCPUs(f *testing.F) {
	for _, seed := range []string{"0", "0-3,8", "3,1-2", "8-1", "0-8192", "", "1,,2", "-1", "1-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cpus, err := ParseCPUs(text)
		if err != nil {
			if !errors.Is(err, ErrBadCPUs) {
				t.Error(err)
			}
			return
		}
		if !slices.IsSorted(cpus) || len(cpus) == 0 {
			t.Errorf("%q gives %v", text, cpus)
		}
		again, err := ParseCPUs(FormatCPUs(cpus))
		if err != nil || !slices.Equal(again, cpus) {
			t.Errorf("%v became %v: %v", cpus, again, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(v1Mounts)
	f.Add(v2Mounts)
	f.Fuzz(func(t *testing.T, text string) {
		if h, err := Parse(text); err == nil && len(h.dirs("/g")) == 0 {
			t.Errorf("%q: no folder", text)
		}
		_, _ = parseKeyed(text, "oom_kill")
		_ = parseProcesses(text)
	})
}
