package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/simgpu"
)

// clean ends all that belongs to the cluster in dir and removes its files. It needs only the
// folder's name, and may be called again.
func clean(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	thawBelow(points) // a process that waits for a frozen disk cannot be killed
	sockets := shimSockets(dir)
	groups, failed := endProcesses(dir)
	for _, socket := range sockets {
		_ = os.Remove(socket) // the shim may have
	}
	failed = errors.Join(failed, removeGroups(groups), removeNetwork(dir))
	removeNodeGroups(dir)
	for range 10 { // another process may have bound the whole file system meanwhile
		if err = remove(dir); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.Join(failed, err)
}

// remove unmounts all below dir and removes it, but nothing while something is mounted there: it
// may be the host's whole file system, bound.
func remove(dir string) error {
	if err := unmountBelow(dir); err != nil {
		return err
	}
	points, err := mountsBelow(dir)
	if err == nil && len(points) > 0 {
		err = fmt.Errorf("still mounted below %s: %v", dir, points)
	}
	if err != nil {
		return err
	}
	return errors.Join(simgpu.Remove(dir), os.RemoveAll(dir))
}

// ours are the names of a cluster's programs.
func ours(program string) bool {
	return slices.Contains(programs(), program) || program == "gnvml" || strings.HasPrefix(program, "containerd")
}

// endProcesses kills every program of the cluster with all its descendants until none are left, and
// returns their control groups.
func endProcesses(dir string) (groups []string, err error) {
	deadline := time.Now().Add(time.Minute)
	for {
		found := processesOf(dir)
		if len(found) == 0 {
			return groups, nil
		}
		if time.Now().After(deadline) {
			return groups, fmt.Errorf("processes that do not end: %v", found)
		}
		for _, pid := range found {
			for _, group := range groupsOf(pid) {
				if !slices.Contains(groups, group) {
					groups = append(groups, group)
				}
			}
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended since
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// processesOf finds the programs whose command line names something below dir, their descendants,
// and tasks that were submitted from there.
func processesOf(dir string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		state, parent := statOf(pid)
		if state == 0 || state == 'Z' {
			continue
		}
		children[parent] = append(children[parent], pid)
		if belongs(pid, dir) {
			found = append(found, pid)
		}
	}
	for i := 0; i < len(found); i++ {
		for _, child := range children[found[i]] {
			if !slices.Contains(found, child) {
				found = append(found, child)
			}
		}
	}
	return found
}

// belongs reads the process's command line and environment.
func belongs(pid int, dir string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := bytes.Split(line, []byte{0})
	if ours(filepath.Base(string(args[0]))) && bytes.Contains(line, []byte(dir+"/")) {
		return true
	}
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err == nil && bytes.Contains(environment, []byte(keepVariable+"=")) && bytes.Contains(line, []byte(dir+"/")) {
		return true
	}
	return err == nil && bytes.Contains(environment, []byte("GREYLAG_JOB_ID=")) && bytes.Contains(environment, []byte(dir+"/"))
}

// statOf returns a process's state and parent; 0 when it has gone.
func statOf(pid int) (state byte, parent int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1])) // the kernel writes a number
	return fields[0][0], parent
}

// groupsOf returns the process's control groups below one of Greylag's.
func groupsOf(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil
	}
	var groups []string
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && strings.Contains(parts[2], "greylag") && !slices.Contains(groups, parts[2]) {
			groups = append(groups, parts[2])
		}
	}
	return groups
}

// removeGroups removes control groups that are empty now; the kernel frees one a moment after its
// last process ends.
func removeGroups(groups []string) error {
	hierarchy, err := cgroup.Detect()
	if err != nil || len(groups) == 0 {
		return nil
	}
	var failed error
	for range 1000 {
		failed = nil
		for _, group := range groups {
			failed = errors.Join(failed, hierarchy.Group(group).Remove())
		}
		if failed == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return failed
}

// removeNodeGroups removes the control groups above those of each node's tasks, which gnoded keeps.
// Their names end with the folder's hash and the node's number.
func removeNodeGroups(dir string) {
	for _, root := range []string{"/sys/fs/cgroup/greylag", "/sys/fs/cgroup/*/greylag"} {
		groups, _ := filepath.Glob(filepath.Join(root, "*-"+networkTag(dir)+"-*"))
		for _, group := range groups {
			_ = os.Remove(group)
		}
	}
}

// shimSockets are outside the folder; the shims left their addresses in it.
func shimSockets(dir string) []string {
	files, _ := filepath.Glob(filepath.Join(containerdDir(dir), "state", "io.containerd.runtime.v2.task", "*", "*", "address"))
	var sockets []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if path, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "unix://"); err == nil && ok {
			sockets = append(sockets, path)
		}
	}
	return sockets
}

// mountsBelow returns this process's mounts at dir and below, in order of creation. Nodes of other
// clusters on this machine bind the whole file system for their tasks, including these mounts:
// those count too, as they would keep the folder busy.
func mountsBelow(dir string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	plain := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`) // as in proc(5)
	var points []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := plain.Replace(fields[4]); strings.Contains(point+"/", dir+"/") {
			points = append(points, point)
		}
	}
	return points, nil
}

// unmountBelow removes every mount below dir, the newest first.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var failed error
	for _, point := range slices.Backward(points) {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			failed = errors.Join(failed, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return failed
}
