package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// misbehaving are jobs that harm themselves. Each ends alone: the node stays ready for work.
func misbehaving() map[string]func(*site) {
	return map[string]func(*site){
		"signals to the first process": signalsToInit, "fork bomb": forkBomb, "full shared memory": fullSharedMemory,
		"TERM ignored by a session of its own": ignoredTerm, "large output": largeOutput,
	}
}

// signalsToInit checks that no signal from inside a job ends or stops the process that holds its
// containers. That process forwards TERM and HUP to the script, which therefore ignores them.
func signalsToInit(s *site) {
	s.needsContainers("a process namespace for each task")
	for _, as := range []account{alice, tester} {
		id := s.gsubmit(as, s.script("trap '' TERM HUP; for s in KILL STOP TERM HUP; do kill -$s 1; done; kill -KILL -1; exit 7"))
		if job := s.ends(id, "FAILED"); job.ExitCode != 7 || job.Attempt != 1 {
			s.t.Errorf("user %d: exit %d:%d in attempt %d, want 7 in the first", as, job.ExitCode, job.ExitSignal, job.Attempt)
		}
	}
}

// forkBomb ends at the memory limit or at the process limit, and leaves the node ready for work.
func forkBomb(s *site) {
	s.needsContainers("memory and process limits")
	id := s.gsubmit(alice, "--time=0:30", s.script("bomb() { bomb | bomb & }; bomb; sleep 300"))
	s.await(limited(s.t, hang), id, "OUT_OF_MEMORY", "FAILED", "TIMEOUT")
	s.ends(s.gsubmit(alice, s.script("true")), "COMPLETED")
}

// fullSharedMemory checks that files in /dev/shm count as memory of the job.
func fullSharedMemory(s *site) {
	s.needsContainers("memory limits")
	id := s.gsubmit(alice, "--mem=48M", s.script("head -c 1G /dev/zero >/dev/shm/x; sleep 300"))
	s.ends(id, "OUT_OF_MEMORY")
}

// largeOutput is stored whole, and its end can be read at once.
func largeOutput(s *site) {
	size := int64(64 << 20)
	if everyFault() {
		size = 2 << 30
	}
	id := s.gsubmit(tester, s.script(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo; echo the end", size)))
	s.ends(id, "COMPLETED")
	info, err := os.Stat(filepath.Join(s.Work, fmt.Sprintf("greylag-%d.out", id)))
	s.must(err)
	if want := size + int64(len("\nthe end\n")); info.Size() != want {
		s.t.Errorf("the output has %d bytes, want %d", info.Size(), want)
	}
	if text := s.ok(tester, "gctl", "logs", "--tail", "1", ref(id)); text != "the end\n" {
		s.t.Errorf("the last line is %.100q", text)
	}
	s.must(os.Remove(filepath.Join(s.Work, info.Name())))
}

// ignoredTerm checks that a child in a session of its own that ignores TERM ends with its job,
// within kill_wait and the time of a slow machine.
func ignoredTerm(s *site) {
	word := fmt.Sprintf("ignores-%d", os.Getpid())
	id := s.gsubmit(tester, s.script(fmt.Sprintf(
		"trap '' TERM; setsid bash -c 'trap \"\" TERM; touch %[1]s; while true; do sleep 0.1; done' %[2]s & wait; sleep 300",
		filepath.Join(s.Work, word), word)))
	s.until("the child runs", func() (bool, error) { return s.exists(word), nil })
	s.ok(tester, "gcancel", ref(id))
	cancelled := time.Now()
	s.ends(id, "CANCELLED")
	if took := time.Since(cancelled); took > time.Minute {
		s.t.Errorf("the job ended %s after it was cancelled, and kill_wait is 10 s", took)
	}
	if left := processWith(s, word); left != 0 {
		s.t.Errorf("process %d of the job still runs", left)
	}
}

// processWith returns a process that has the word among its arguments, or 0.
func processWith(s *site, word string) int {
	s.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	s.must(err)
	for _, path := range all {
		line, err := os.ReadFile(path)
		if err == nil && strings.Contains("\x00"+string(line), "\x00"+word+"\x00") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			s.must(err)
			return pid
		}
	}
	return 0
}

// shimKilled checks that the job of a killed shim runs again as its next attempt.
func shimKilled(s *site) {
	s.needsContainers("shims")
	folder, err := os.MkdirTemp(s.Work, "shim-")
	s.must(err)
	id := s.gsubmit(tester, "--chdir="+folder, "--output=/dev/null", s.script(`test $GREYLAG_ATTEMPT = 1 && sleep 280; exit 8`))
	s.await(s.t.Context(), id, "RUNNING")
	shim, err := ancestor(processIn(s, folder), "gshimd")
	s.must(err)
	s.must(syscall.Kill(shim, syscall.SIGKILL))
	if job := s.ends(id, "FAILED"); job.ExitCode != 8 || job.Attempt != 2 {
		s.t.Errorf("exit %d:%d in attempt %d, want 8 in the second", job.ExitCode, job.ExitSignal, job.Attempt)
	}
}

// ancestor returns the nearest ancestor of that name of a process, which is a folder in /proc.
func ancestor(process, name string) (int, error) {
	for process != "/proc/0" {
		data, err := os.ReadFile(process + "/status")
		if err != nil {
			return 0, err
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(data)) {
			key, value, _ := strings.Cut(line, ":")
			fields[key] = strings.TrimSpace(value)
		}
		if fields["Name"] == name {
			return strconv.Atoi(filepath.Base(process))
		}
		process = "/proc/" + fields["PPid"]
	}
	return 0, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

// probeVariable makes this program report which system calls it may use; jobs set it.
const probeVariable = "GREYLAG_E2E_SYSTEM_CALLS"

// systemCalls are those that no job may use. The numbers are of x86-64.
var systemCalls = []struct {
	name   string
	number uintptr
	args   [4]uintptr
}{
	{"mount", syscall.SYS_MOUNT, [4]uintptr{}},
	{"umount2", syscall.SYS_UMOUNT2, [4]uintptr{}},
	{"unshare a user namespace", 272, [4]uintptr{0x10000000}},
	{"unshare a mount namespace", 272, [4]uintptr{0x20000}},
	{"setns", 308, [4]uintptr{0, 0}},
	{"bpf", 321, [4]uintptr{0, 0, 0}},
	{"keyctl", 250, [4]uintptr{0, ^uintptr(2), 1}},
	{"add_key", 248, [4]uintptr{}},
	{"io_uring_setup", 425, [4]uintptr{1, 0}},
	{"perf_event_open", 298, [4]uintptr{}},
	{"userfaultfd", 323, [4]uintptr{0}},
	{"open_by_handle_at", 304, [4]uintptr{}},
	{"kexec_load", 246, [4]uintptr{}},
	{"init_module", 175, [4]uintptr{}},
	{"pivot_root", 155, [4]uintptr{}},
	{"a packet socket", syscall.SYS_SOCKET, [4]uintptr{syscall.AF_PACKET, syscall.SOCK_RAW, 0}},
	{"reboot", 169, [4]uintptr{0, 0, 0}},
	{"settimeofday", 164, [4]uintptr{}},
}

// probeIfAsked reports each call that is not refused with EPERM or ENOSYS, and exits.
func probeIfAsked() {
	if os.Getenv(probeVariable) == "" {
		return
	}
	status := 0
	for _, call := range systemCalls {
		_, _, errno := syscall.RawSyscall6(call.number, call.args[0], call.args[1], call.args[2], call.args[3], 0, 0)
		if !errors.Is(errno, syscall.EPERM) && !errors.Is(errno, syscall.ENOSYS) {
			fmt.Printf("%s: %v\n", call.name, errno)
			status = 9
		}
	}
	os.Exit(status)
}

// refusedCalls checks that a job of a user may neither change namespaces, mounts, keys and the
// clock nor load code into the kernel.
func refusedCalls(s *site) {
	s.needsContainers("the profile of system calls")
	if runtime.GOARCH != "amd64" {
		s.t.Skip("needs x86-64: the numbers of system calls")
	}
	self, err := os.Executable()
	s.must(err)
	data, err := os.ReadFile(self)
	s.must(err)
	program := filepath.Join(s.Work, "system-calls")
	s.must(os.WriteFile(program, data, 0o755))
	id := s.gsubmit(alice, "--mem=256M", s.script(fmt.Sprintf(
		"%s=1 %s || exit; ! mknod /tmp/disk b 8 0 && ! chroot / true && ! unshare -r true", probeVariable, program)))
	job := s.await(limited(s.t, hang), id, "COMPLETED", "FAILED")
	got := s.output("greylag-%d.out", id)
	if job.ExitCode != 0 {
		s.t.Errorf("exit status %d, calls that were not refused: %s", job.ExitCode, got)
	}
}
