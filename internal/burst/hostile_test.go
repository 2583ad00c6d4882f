package burst

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// alive reports whether a process runs; one that only waits to be reaped does not.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// awaitDead waits until the processes whose IDs a file names have ended.
func awaitDead(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(text)) {
		for end := time.Now().Add(10 * time.Second); alive(pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("process %s of the program still runs", pid)
			}
		}
	}
}

func TestHangingProgramIsKilled(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	for name, body := range map[string]string{
		"hangs":                       "sleep 1000 & echo $! $$ > " + pids + "; wait",
		"ignores signals":             "trap '' TERM INT HUP; sleep 1000 & echo $! $$ > " + pids + "; while :; do wait; done",
		"answers and hangs":           `echo '{"instances": []}'; echo $$ > ` + pids + "; exec sleep 1000",
		"closes its output and hangs": "echo $$ > " + pids + "; exec sleep 1000 >&- 2>&-",
	} {
		p, _ := scripted(t, body)
		p.cfg.Timeout = 400 * time.Millisecond
		begin := time.Now()
		if _, err := p.List(t.Context()); !errors.Is(err, ErrTimeout) || !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("a program that %s: %v", name, err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("a program that %s took %v", name, took)
		}
		awaitDead(t, pids)
	}
}

// TestChildrenAreKilled: a valid answer counts, and what the program left behind is killed, with and without its output.
func TestChildrenAreKilled(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	for name, start := range map[string]string{"holds the output": "sleep 1000 &", "holds nothing": "sleep 1000 </dev/null >/dev/null 2>&1 &"} {
		p, _ := scripted(t, start+" echo $! > "+pids+`; echo '{"instances": []}'`)
		begin := time.Now()
		if list, err := p.List(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("a child that %s: %v, %v", name, list, err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("a child that %s: the call took %v", name, took)
		}
		awaitDead(t, pids)
	}
}

// TestProcessOfAnotherGroup: a process that left the group is not killed, but no call waits for it.
func TestProcessOfAnotherGroup(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	p, log := scripted(t, "setsid sh -c 'echo $$ > "+pids+`; exec sleep 8' & while [ ! -s `+pids+` ]; do sleep 0.01; done; echo '{"instances": []}'`)
	begin := time.Now()
	if _, err := p.List(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 6*time.Second || !strings.Contains(log.String(), "keep its output open") {
		t.Errorf("the call took %v; log: %s", took, log)
	}
	awaitDead(t, pids)
}

func TestFloods(t *testing.T) {
	p, _ := scripted(t, "exec cat /dev/zero")
	if _, err := p.Offers(t.Context()); !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), "larger than 4 MiB") {
		t.Errorf("a program that floods its output: %v", err)
	}
	p, log := scripted(t, `head -c 30000000 /dev/zero | tr '\0' 'x' >&2; i=0; while [ $i -lt 2000 ]; do echo "line $i of a program that writes much" >&2; i=$((i+1)); done; echo '{"instances": []}'`)
	if _, err := p.List(t.Context()); err != nil {
		t.Errorf("a program that floods its errors: %v", err)
	}
	if got := log.String(); len(got) > 512<<10 || strings.Count(got, "the rest is not logged") != 1 || !strings.Contains(got, "line 1 of") {
		t.Errorf("log of %d bytes", len(got))
	}
}

func TestProgramThatCannotRun(t *testing.T) {
	p, _ := scripted(t, "kill -9 $$")
	if _, err := p.List(t.Context()); !errors.Is(err, ErrProgram) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a program that is killed: %v", err)
	}
	p.cfg.Program = "/nonexistent"
	if _, err := p.List(t.Context()); !errors.Is(err, ErrProgram) || !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("a missing program: %v", err)
	}
	// A program that reads nothing gets a broken pipe for a large question, and its answer counts.
	p, _ = scripted(t, `exec <&-; echo '{"instances": []}'`)
	if _, err := p.Terminate(t.Context(), make([]string, 200_000)); err != nil {
		t.Errorf("a program that reads nothing: %v", err)
	}
}
