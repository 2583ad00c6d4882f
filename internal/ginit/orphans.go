//go:build linux

package ginit

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
)

const prSetChildSubreaper = 36 // prctl(2)

// gatherOrphans makes this process the parent of every orphaned descendant, as PID 1 of a namespace
// is.
func gatherOrphans() {
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0)
	_ = errno // without it (kernels before 3.4) orphaned children go to init
}

// killOrphans kills children until none is left; their children become ours and follow.
func killOrphans() {
	for {
		for _, pid := range children(os.Getpid()) {
			// It may have ended meanwhile.
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_, err := syscall.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return // ECHILD: none left
		}
	}
}

// children lists the processes whose parent is pid. O(processes of the host).
func children(pid int) []int {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := proc.Readdirnames(-1) // the next round completes a partial list
	_ = proc.Close()
	var found []int
	for _, name := range names {
		id, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if parent, ok := parentIn(stat); ok && parent == pid {
			found = append(found, id)
		}
	}
	return found
}

// parentIn returns field 4 of /proc/PID/stat (proc(5)). The command, field 2, may hold spaces and
// parentheses, so fields are counted after the last parenthesis.
func parentIn(stat []byte) (int, bool) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}
