//go:build linux

package ginit

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStepsEndWithTheProgram checks that a step whose process has ended before the program, but was not
// reaped, keeps its exit status or signal, and that a step that still runs is ended without a record.
func TestStepsEndWithTheProgram(t *testing.T) {
	dir := t.TempDir()
	x := newSteps(dir, &Order{})
	start := func(step uint32, script string) int {
		pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		x.running[pid] = stepProcess{step: step, started: time.Now()}
		return pid
	}
	ended, running, crashed := start(0, "exit 3"), start(1, "sleep 300"), start(2, "kill -SEGV $$")
	for _, pid := range []int{ended, crashed} {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
	}
	x.endSteps()
	for step, want := range map[uint32]int{0: 3, 2: 128 + int(syscall.SIGSEGV)} {
		data, err := os.ReadFile(filepath.Join(dir, StepRecordFile(step)))
		if err != nil {
			t.Fatal(err)
		}
		if record, err := DecodeRecord(data); err != nil || record.Code != want {
			t.Errorf("step %d: %+v: %v", step, record, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, StepRecordFile(1))); err == nil {
		t.Error("the step that ran has a record")
	}
	if err := syscall.Kill(running, 0); err == nil || len(x.running) != 0 {
		t.Errorf("a step is left: %v", err)
	}
}
