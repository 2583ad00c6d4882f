//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ErrBadFile says that a control file does not hold what it should.
var ErrBadFile = errors.New("unexpected content of a control file")

// ErrBadCPUs says that a text is no list of cores.
var ErrBadCPUs = errors.New("not a list of cores")

// maxCPU bounds what a list may name: the kernel's own limit (CONFIG_NR_CPUS).
const maxCPU = 8192

// parseKeyed reads one number from lines of "key number", such as memory.events.
func parseKeyed(text, key string) (uint64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == key {
			n, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s %q: %w", key, fields[1], ErrBadFile)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("no %s: %w", key, ErrBadFile)
}

// parseProcesses reads cgroup.procs. 0 stands for a process of another PID
// namespace, which cannot be signalled from here, and is left out.
func parseProcesses(text string) []int {
	var pids []int
	for field := range strings.FieldsSeq(text) {
		if pid, err := strconv.ParseInt(field, 10, 32); err == nil && pid > 0 {
			pids = append(pids, int(pid))
		}
	}
	return pids
}

// ParseCPUs reads a list as the kernel writes it ("0-3,8"; cpuset(7)) into
// ascending core numbers, each once.
func ParseCPUs(text string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.ParseUint(low, 10, 16)
		to, errTo := strconv.ParseUint(high, 10, 16)
		if errFrom != nil || errTo != nil || from > to || to >= maxCPU {
			return nil, fmt.Errorf("%.40q: %w", text, ErrBadCPUs)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// FormatCPUs is the shortest list for ascending core numbers.
func FormatCPUs(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); {
		end := i
		for end+1 < len(cpus) && cpus[end+1] == cpus[end]+1 {
			end++
		}
		if end == i {
			parts = append(parts, strconv.Itoa(cpus[i]))
		} else {
			parts = append(parts, strconv.Itoa(cpus[i])+"-"+strconv.Itoa(cpus[end]))
		}
		i = end + 1
	}
	return strings.Join(parts, ",")
}

// without returns the pids that are not in except.
func without(pids, except []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return slices.Contains(except, pid) })
}

// signalAll sends sig to each; one that has ended meanwhile is no error.
func signalAll(pids []int, sig syscall.Signal, except []int) error {
	var failed error
	for _, pid := range without(pids, except) {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			failed = errors.Join(failed, fmt.Errorf("process %d: %w", pid, err))
		}
	}
	return failed
}
