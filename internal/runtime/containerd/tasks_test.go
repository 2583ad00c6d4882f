//go:build linux

package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/greylag/greylag/internal/runtime"
)

// TestTasks runs the cases of testdata/tasks.txt on the host's file system.
func TestTasks(t *testing.T) {
	r := newRuntime(t, nil)
	cases := must(os.ReadFile("testdata/tasks.txt"))(t)
	for i, text := range strings.Split(string(cases), "\n== ")[1:] {
		name, rest, _ := strings.Cut(text, "\n")
		t.Run(name, func(t *testing.T) {
			script, want, ok := strings.Cut(rest, "-- exit ")
			if !ok {
				t.Fatal("case without -- exit")
			}
			status, wantOut, _ := strings.Cut(want, "\n")
			spec := job(t, uint64(i+1), script)
			spec.PidsLimit = 30
			exit, out := run(t, r, spec)
			got := fmt.Sprint(exit.Code)
			if exit.Signal != 0 {
				got += fmt.Sprint(" signal ", exit.Signal)
			}
			if got != status || exit.LaunchError != "" || exit.Lost || exit.OOM {
				t.Errorf("exit %s, want %s: %+v\n%s", got, status, exit, out)
			}
			compare(t, out, strings.TrimSuffix(wantOut, "\n"))
		})
	}
}

// compare compares line by line, or with one pattern that begins with (?s).
func compare(t *testing.T, got, want string) {
	t.Helper()
	if strings.HasPrefix(want, "~(?s)") {
		if !regexp.MustCompile(want[1:]).MatchString(got) {
			t.Errorf("output:\n%s\nwant:\n%s", got, want)
		}
		return
	}
	gotLines, wantLines := strings.Split(strings.TrimSuffix(got, "\n"), "\n"), strings.Split(strings.TrimSuffix(want, "\n"), "\n")
	same := len(gotLines) == len(wantLines)
	for i := 0; same && i < len(wantLines); i++ {
		pattern, isPattern := strings.CutPrefix(wantLines[i], "~")
		same = gotLines[i] == wantLines[i] || isPattern && regexp.MustCompile(pattern).MatchString(gotLines[i])
	}
	if !same {
		t.Errorf("output:\n%s\nwant:\n%s", got, want)
	}
}

// TestLaunchErrors checks that mistakes of the user are reported to the user.
func TestLaunchErrors(t *testing.T) {
	r := newRuntime(t, nil)
	folder := home(t)
	if err := os.Symlink("/etc/passwd", filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(folder, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(folder, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	passwd := must(os.Stat("/etc/passwd"))(t)
	cases := []struct {
		name   string
		change func(*runtime.Spec)
		code   int
		want   string
	}{
		{"no folder", func(s *runtime.Spec) { s.WorkDir = "/nowhere" }, 117, "cannot enter the working directory /nowhere: no such file or directory"},
		{"folder of root", func(s *runtime.Spec) { s.WorkDir = "/root" }, 117, "cannot enter the working directory /root: permission denied"},
		{"output in no folder", func(s *runtime.Spec) { s.Stdout = "/nowhere/out" }, 118, "cannot open the output file /nowhere/out: no such file or directory"},
		{"output through a link", func(s *runtime.Spec) { s.Stdout = folder + "/link" }, 118, "permission denied"},
		{"errors in root's folder", func(s *runtime.Spec) { s.Stderr = "/root/err" }, 118, "cannot open the output file /root/err: permission denied"},
		{"output to a FIFO without a reader", func(s *runtime.Spec) { s.Stdout = folder + "/fifo" }, 118, "no such device or address"},
		{"input of root", func(s *runtime.Spec) { s.Stdin = "/etc/shadow" }, 120, "cannot open the input file /etc/shadow: permission denied"},
		{"no interpreter", func(s *runtime.Spec) { s.Script = []byte("#!/no/such\n") }, 119, "cannot run the script: the program named by its #! line does not exist here"},
		{"no program", func(s *runtime.Spec) { s.Script, s.Args = nil, []string{"no-such-program"} }, 119, "cannot run no-such-program: no such program"},
		{"no permission", func(s *runtime.Spec) { s.Script, s.Args = nil, []string{"/etc/passwd"} }, 119, "cannot run /etc/passwd: permission denied"},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			spec := job(t, uint64(100+i), "echo never\n")
			c.change(&spec)
			exit, _ := run(t, r, spec)
			if exit.Code != c.code || !strings.Contains(exit.LaunchError, c.want) || !exit.Started.IsZero() {
				t.Errorf("%+v, want %d %q", exit, c.code, c.want)
			}
		})
	}
	if now := must(os.Stat("/etc/passwd"))(t); now.Size() != passwd.Size() || !now.ModTime().Equal(passwd.ModTime()) {
		t.Error("/etc/passwd was written")
	}
}

// TestLittleMemoryWords parses the messages of crun 1.8.1 through containerd, and of runc 1.1.15
// under systemd. Without a limit, or with a sufficient one, it is not the user's fault.
func TestLittleMemoryWords(t *testing.T) {
	for words, enough := range map[string]uint64{
		"OOM: the memory limit could be too low: read from the init process": 0,
		"runc create failed: unable to start container process: error during container init: error setting cgroup config for procHooks process: " +
			"bpf_prog_query(BPF_CGROUP_DEVICE) failed: no such file or directory": 64 << 20,
		`runc create failed: unable to start container process: error during container init: writing syncT "procResume": write init-p: broken pipe`: 64 << 20,
	} {
		err := errors.New("failed to create shim task: OCI runtime create failed: " + words + ": unknown")
		if err := refusal(err, &runtime.Spec{Memory: 64 << 10}); !errors.Is(err, runtime.ErrInvalid) || !strings.HasPrefix(err.Error(), "64 KiB of memory is too little") {
			t.Errorf("with 64 KiB: %v", err)
		}
		if err := refusal(err, &runtime.Spec{Memory: enough}); errors.Is(err, runtime.ErrInvalid) {
			t.Errorf("with %d bytes: %v", enough, err)
		}
	}
}

// TestLittleMemory checks the message for a limit that is too small to start a task.
func TestLittleMemory(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "exit 3\n")
	spec.Memory = 64 << 10
	err := r.Start(limit(t), spec)
	if !errors.Is(err, runtime.ErrInvalid) || !strings.Contains(err.Error(), "64 KiB of memory is too little to start it") {
		t.Errorf("with 64 KiB: %v", err)
	}
	spec.ID.Attempt, spec.Memory = 2, startMemory
	if exit, _ := run(t, r, spec); exit.Code != 3 {
		t.Errorf("with %d MiB: %+v", spec.Memory>>20, exit)
	}
}

// TestInput checks that the script reads the user's file, and nothing without one.
func TestInput(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "cat; echo end\n")
	if _, out := run(t, r, spec); out != "end\n" {
		t.Errorf("without an input file: %q", out)
	}
	spec.ID.Attempt, spec.Stdin = 2, filepath.Join(home(t), "in")
	if err := os.WriteFile(spec.Stdin, []byte("from a file\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, out := run(t, r, spec); out != "from a file\nend\n" {
		t.Errorf("with an input file: %q", out)
	}
}

// TestOutput covers separate files, appended or truncated, owned by the user.
func TestOutput(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "echo out; echo err >&2\n")
	if _, out := run(t, r, spec); out != "out\nerr\n" {
		t.Errorf("one file for both: %q", out)
	}
	spec.ID.Attempt, spec.Append = 2, true
	if _, out := run(t, r, spec); out != "out\nerr\nout\nerr\n" {
		t.Errorf("appended: %q", out)
	}
	spec.ID.Attempt, spec.Append, spec.Stderr = 3, false, spec.Stdout+".err"
	if _, out := run(t, r, spec); out != "out\n" {
		t.Errorf("truncated: %q", out)
	}
	if text := string(must(os.ReadFile(spec.Stderr))(t)); text != "err\n" {
		t.Errorf("errors apart: %q", text)
	}
	info := must(os.Stat(spec.Stderr))(t)
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != 1000 || stat.Gid != 1000 || info.Mode() != 0o644 {
		t.Errorf("owner or mode: %+v", info.Sys())
	}
	spec.ID.Attempt, spec.Stdout, spec.Stderr = 4, "", ""
	ctx := limit(t)
	if err := r.Start(ctx, spec); err != nil {
		t.Fatal(err)
	}
	if exit := must(r.Wait(ctx, spec.ID))(t); exit.Code != 0 || exit.LaunchError != "" {
		t.Errorf("no output file: %+v", exit)
	}
}

// TestLimits checks memory and CPU limits and their values in Exit and Stats.
func TestLimits(t *testing.T) {
	r := newRuntime(t, nil)
	hog := job(t, 1, "exec sh -c 'x=$(yes | head -c 400000000)'\n")
	hog.Memory = 64 << 20
	exit, out := run(t, r, hog)
	if !exit.OOM || exit.OOMKills == 0 || exit.Code != 137 || exit.Signal != 9 || exit.PeakMemory < 60<<20 || exit.PeakMemory > 64<<20 {
		t.Errorf("memory hog: %+v %s", exit, out)
	}
	again := must(r.Wait(limit(t), hog.ID))(t)
	if again != exit {
		t.Errorf("asked again: %+v, was %+v", again, exit)
	}
	survivor := job(t, 2, "sh -c 'x=$(yes | head -c 400000000)'\nexit 0\n")
	survivor.Memory = 64 << 20
	if exit, _ := run(t, r, survivor); exit.OOM || exit.OOMKills == 0 || exit.Code != 0 {
		t.Errorf("a child killed for memory, and success: %+v", exit)
	}
	pinned := job(t, 3, "grep Cpus_allowed_list /proc/self/status | tr -d '\\t'\nnproc\n")
	pinned.CPUSet, pinned.CPUs = "1", 1
	if exit, out := run(t, r, pinned); exit.Code != 0 || out != "Cpus_allowed_list:1\n1\n" {
		t.Errorf("core set: %+v %q", exit, out)
	}
	busy := job(t, 4, "(ulimit -t 1; while :; do :; done)\nx=$(yes | head -c 50000000)\nexit 0\n")
	if exit, _ := run(t, r, busy); exit.CPUTime < 900e6 || exit.UserTime <= 0 || exit.UserTime >= exit.CPUTime || exit.PeakMemory < 40<<20 {
		t.Errorf("use: %+v", exit)
	}
}
