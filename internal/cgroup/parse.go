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

// ErrBadFile means that a control file has unexpected content.
var ErrBadFile = errors.New("unexpected content of a control file")

// ErrBadCPUs means that a text is not a list of CPUs.
var ErrBadCPUs = errors.New("not a list of CPUs")

// maxCPU bounds the CPU numbers of a list. It is the kernel's own limit (CONFIG_NR_CPUS).
const maxCPU = 8192

// parseKeyed returns one number from lines of the form "key number", such as those of
// memory.events.
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

// parseProcesses parses cgroup.procs. It leaves out 0, which stands for a process of another PID
// namespace and cannot be signalled from here.
func parseProcesses(text string) []int {
	var pids []int
	for field := range strings.FieldsSeq(text) {
		if pid, err := strconv.ParseInt(field, 10, 32); err == nil && pid > 0 {
			pids = append(pids, int(pid))
		}
	}
	return pids
}

// ParseCPUs parses a list in the kernel's format ("0-3,8"; cpuset(7)) and returns ascending CPU
// numbers without duplicates.
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

// FormatCPUs returns the shortest list for ascending CPU numbers.
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

// signalAll sends sig to each process. A process that has ended is no error.
func signalAll(pids []int, sig syscall.Signal, except []int) error {
	var failed error
	for _, pid := range without(pids, except) {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			failed = errors.Join(failed, fmt.Errorf("process %d: %w", pid, err))
		}
	}
	return failed
}
