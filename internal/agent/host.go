package agent

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/pkg/cluster"
)

// host holds the resources of the node other than GPUs.
type host struct {
	cpus   int // offered; may be configured
	memory cluster.Bytes
	cores  []core // usable by this process
	tasks  int64  // maximum number of processes and threads of the kernel
}

// discover reads what this process may use: its CPU affinity and the limits of its control groups.
// A node in a container takes these as its host.
func discover(cfg Config) (host, error) {
	cores, err := usableCores()
	if err != nil {
		return host{}, err
	}
	h := host{cores: cores, cpus: len(cores)}
	if quota := cpuQuota(); quota > 0 {
		h.cpus = max(1, min(h.cpus, quota))
	}
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return host{}, err
	}
	if h.memory, err = parseMemTotal(string(data)); err != nil {
		return host{}, err
	}
	if limit := memoryLimit(); limit > 0 {
		h.memory = min(h.memory, limit)
	}
	// Threads have process IDs too. An unreadable value means no limit.
	h.tasks = min(readNumber("/proc/sys/kernel/pid_max"), readNumber("/proc/sys/kernel/threads-max"))
	if cfg.CPUs > 0 {
		h.cpus = cfg.CPUs
	}
	if cfg.Memory > 0 {
		h.memory = cfg.Memory
	}
	return h, nil
}

// minTasks is the minimum number of processes of a task: enough for a Java or Go program.
const minTasks = 1024

// tasksFor returns the limit of processes and threads for a task with that many CPUs: its share of
// half of the kernel's limit, so that jobs cannot keep this daemon or other users from starting
// processes. 0 means no limit.
func (h *host) tasksFor(cpus int) int64 {
	if h.tasks <= 0 {
		return 0
	}
	part := h.tasks / 2 * int64(max(cpus, 1)) / int64(max(h.cpus, 1))
	return max(minTasks, min(part, h.tasks/2))
}

// usableCores lists the CPUs of this process's affinity; neighbours are adjacent.
func usableCores() ([]core, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("CPU affinity: %w", err)
	}
	numa := numaNodes()
	var list []core
	first := map[int]int{} // by core: its first hardware thread
	for cpu := range len(set) * 64 {
		if !set.IsSet(cpu) {
			continue
		}
		list = append(list, core{cpu: cpu, numa: numa[cpu]})
		first[cpu] = firstSibling(cpu)
	}
	slices.SortFunc(list, func(a, b core) int {
		return cmp.Or(cmp.Compare(a.numa, b.numa), cmp.Compare(first[a.cpu], first[b.cpu]), cmp.Compare(a.cpu, b.cpu))
	})
	if len(list) == 0 {
		return nil, errors.New("CPU affinity: no CPU")
	}
	return list, nil
}

// numaNodes returns the NUMA node of each CPU; 0 if the kernel knows none.
func numaNodes() map[int]int {
	nodes := map[int]int{}
	files, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*/cpulist") // the pattern is well formed
	for _, file := range files {
		node, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "node"))
		if err != nil {
			continue
		}
		for _, cpu := range cpuList(file) {
			nodes[cpu] = node
		}
	}
	return nodes
}

func firstSibling(cpu int) int {
	list := cpuList("/sys/devices/system/cpu/cpu" + strconv.Itoa(cpu) + "/topology/thread_siblings_list")
	if len(list) == 0 {
		return cpu
	}
	return list[0]
}

func cpuList(file string) []int {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	list, err := cgroup.ParseCPUs(strings.TrimSpace(string(data)))
	if err != nil {
		return nil
	}
	return list
}

// parseMemTotal parses /proc/meminfo (proc(5)).
func parseMemTotal(text string) (cluster.Bytes, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err == nil && kib > 0 && kib < math.MaxInt64/1024 {
				return cluster.Bytes(kib) * cluster.KiB, nil
			}
		}
	}
	return 0, errors.New("/proc/meminfo: no MemTotal")
}

// cpuQuota returns the CPU quota of this process's control groups, rounded up; 0 without a limit.
func cpuQuota() int {
	least := 0
	consider := func(quota, period int64) {
		if quota > 0 && period > 0 {
			n := int((quota + period - 1) / period)
			if least == 0 || n < least {
				least = n
			}
		}
	}
	for _, dir := range ownGroups("cpu") {
		if data, err := os.ReadFile(filepath.Join(dir, "cpu.max")); err == nil {
			var quota, period int64
			if _, err := fmt.Sscan(string(data), &quota, &period); err == nil { // "max 100000" has no number
				consider(quota, period)
			}
		}
		consider(readNumber(filepath.Join(dir, "cpu.cfs_quota_us")), readNumber(filepath.Join(dir, "cpu.cfs_period_us")))
	}
	return least
}

// memoryLimit returns the smallest limit of this process's control groups; 0 without a limit.
func memoryLimit() cluster.Bytes {
	least := int64(0)
	for _, dir := range ownGroups("memory") {
		for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
			n := readNumber(filepath.Join(dir, file))
			// Version 1 writes "no limit" as the largest multiple of a page.
			if n > 0 && n < math.MaxInt64-1<<20 && (least == 0 || n < least) {
				least = n
			}
		}
	}
	return cluster.Bytes(least)
}

func readNumber(file string) int64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// ownGroups lists the directories of this process's control group for a controller and its parents,
// in either version.
func ownGroups(controller string) []string {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root := "/sys/fs/cgroup"
		switch names := strings.Split(parts[1], ","); {
		case parts[1] == "":
		case slices.Contains(names, controller):
			root = filepath.Join(root, controller)
		default:
			continue
		}
		for group := filepath.Clean("/" + parts[2]); ; group = filepath.Dir(group) {
			dirs = append(dirs, filepath.Join(root, group))
			if group == "/" {
				break
			}
		}
	}
	return dirs
}
