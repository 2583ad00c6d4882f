//go:build linux

package private

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
	"github.com/greylag/greylag/internal/runtime/proc"
)

// Shims lists the shims of this containerd, by their command lines.
func (d *Daemon) Shims() ([]int, error) {
	processes, err := table()
	if err != nil {
		return nil, err
	}
	var shims []int
	for pid := range processes {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err != nil {
			continue // it has ended meanwhile
		}
		args := bytes.Split(line, []byte{0})
		i := slices.IndexFunc(args, func(a []byte) bool { return string(a) == "-address" })
		if i >= 0 && i+1 < len(args) && string(args[i+1]) == d.Address() {
			shims = append(shims, pid)
		}
	}
	slices.Sort(shims)
	return shims, nil
}

// killShims kills every shim of this containerd with the tasks below it.
func (d *Daemon) killShims() error {
	shims, err := d.Shims()
	if err != nil || len(shims) == 0 {
		return err
	}
	sockets := d.shimSockets()
	parents, err := table()
	if err != nil {
		return err
	}
	var doomed []proc.Handle
	var groups []string
	for pid, parent := range parents {
		isShim, isTask := slices.Contains(shims, pid), slices.Contains(shims, parent)
		if !isShim && !isTask {
			continue
		}
		if isTask {
			groups = append(groups, groupOf(pid)...)
		}
		if handle, err := proc.Identify(pid); err == nil {
			doomed = append(doomed, handle)
		}
	}
	failed := killAll(doomed)
	for _, socket := range sockets {
		_ = os.Remove(socket) // a shim that ended normally removed its own
	}
	return errors.Join(failed, removeGroups(groups))
}

// killAll kills processes and waits for their end.
func killAll(doomed []proc.Handle) error {
	for _, handle := range doomed {
		if err := handle.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, proc.ErrGone) {
			return fmt.Errorf("kill shim or task %d: %w", handle.PID, err)
		}
	}
	limit := time.Now().Add(time.Minute)
	for _, handle := range doomed {
		for handle.Alive() {
			if time.Now().After(limit) {
				return fmt.Errorf("shim or task %d does not end: %w", handle.PID, ErrNotReady)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	return nil
}

// table returns the parent of every process.
func table() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(string(fields[1])) // a number from the kernel
		}
	}
	return parents, nil
}

// groupOf returns the control group that the OCI runtime created for a process: its group in pids
// or in version 2. None if that is the root, which is not ours.
func groupOf(pid int) []string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil
	}
	found := ""
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case slices.Contains(strings.Split(parts[1], ","), "pids"):
			found = parts[2]
		case parts[1] == "" && found == "":
			found = parts[2]
		}
	}
	if found == "" || found == "/" {
		return nil
	}
	return []string{found}
}

// removeGroups removes the groups of killed tasks; the kernel releases a group shortly after its
// last process.
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

// shimSockets returns the sockets of shims, which are outside the directory, in /run/containerd/s.
func (d *Daemon) shimSockets() []string {
	files, err := filepath.Glob(filepath.Join(d.StateDir(), "io.containerd.runtime.v2.task", "*", "*", "address"))
	if err != nil {
		return nil
	}
	var sockets []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if path, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "unix://"); err == nil && ok {
			sockets = append(sockets, path)
		}
	}
	return sockets
}

// unmountBelow removes every mount at dir and below, the newest first.
func unmountBelow(dir string) error {
	points, err := mountPoints()
	if err != nil {
		return err
	}
	var failed error
	for _, point := range slices.Backward(points) {
		if point == dir || strings.HasPrefix(point, dir+"/") {
			if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
				failed = errors.Join(failed, fmt.Errorf("unmount %s: %w", point, err))
			}
		}
	}
	return failed
}

func isMountPoint(dir string) bool {
	points, err := mountPoints()
	return err == nil && slices.Contains(points, dir)
}

// mountPoints returns this process's mounts in the order of their creation.
func mountPoints() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape(fields[4]))
		}
	}
	return points, nil
}

// unescape decodes the octal escapes of mountinfo (proc(5)).
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}
