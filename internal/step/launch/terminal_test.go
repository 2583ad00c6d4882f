package launch_test

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/greylag/greylag/internal/step"
)

// TestSignalsGoToAllTasks sends one once all tasks have set their handlers.
func TestSignalsGoToAllTasks(t *testing.T) {
	s := newTrial(t, `trap 'echo got; exit 3' USR1; echo ready; while :; do sleep 0.05; done`, 2, 1)
	signals := make(chan os.Signal, 1)
	s.Signals = signals
	s.out.added = func(text string) {
		if strings.HasSuffix(text, "ready\n") && strings.Count(text, "ready") == 3 {
			signals <- syscall.SIGUSR1
		}
	}
	if status := s.run(t); status != 3 || strings.Count(s.out.String(), "got\n") != 3 {
		t.Errorf("status %d, output %q: %s", status, s.out.String(), s.notes.String())
	}
}

// TestInterrupt presses Ctrl-C once, twice and three times.
func TestInterrupt(t *testing.T) {
	for _, c := range []struct {
		script  string
		presses int
		quit    bool
		want    int
		note    string
	}{
		{`echo ready; read line`, 1, false, 1, "step 12.3: tasks 0-2: running"}, // read fails at the end
		{`echo ready; exec sleep 600`, 2, false, 130, "interrupt: ending step 12.3"},
		{`echo ready; exec sleep 600`, 1, true, 130, "interrupt: ending step 12.3"},
		{`trap '' INT; echo ready; while :; do sleep 1; done`, 3, false, 130, "interrupt: ending step 12.3"},
	} {
		s := newTrial(t, c.script, 2, 1)
		signals := make(chan os.Signal, 3)
		in, close := io.Pipe()
		s.Signals, s.Stdin, s.QuitOnInterrupt = signals, in, c.quit
		s.out.added = func(text string) {
			if strings.Count(text, "ready") == 3 {
				for range c.presses {
					signals <- os.Interrupt
				}
			}
		}
		s.notes.added = func(text string) {
			if strings.Contains(text, c.note) {
				close.Close()
			}
		}
		if status := s.run(t); status != c.want || !strings.Contains(s.notes.String(), c.note) {
			t.Errorf("%d presses: status %d, want %d: %s", c.presses, status, c.want, s.notes.String())
		}
	}
}

// TestTerminalOfRank0 runs a terminal of a known size, changes the size, and sends Ctrl-D.
func TestTerminalOfRank0(t *testing.T) {
	s := newTrial(t, `if [ $SLURM_PROCID != 0 ]; then [ -t 0 ] || cat; echo unseen; exit; fi
		trap 'stty size; echo resized' WINCH; stty size; tty > /dev/null || exit 9; while read line; do echo got $line; done; echo end`, 1, 2)
	s.Program.PTY, s.Program.Rows, s.Program.Cols = true, 33, 111
	signals := make(chan os.Signal, 1)
	in, keys := io.Pipe()
	s.Signals, s.Stdin, s.Size = signals, in, func() (uint16, uint16) { return 44, 99 }
	steps := 0
	s.out.added = func(text string) {
		switch {
		case steps == 0 && strings.Contains(text, "33 111\r\n"):
			steps++
			signals <- syscall.SIGWINCH
			go keys.Write([]byte("hello\r"))
		case steps == 1 && strings.Contains(text, "44 99\r\n") && strings.Contains(text, "got hello\r\n"):
			steps++
			go keys.Close()
		}
	}
	if status := s.run(t); status != 0 || steps != 2 || strings.Contains(s.out.String(), "unseen") {
		t.Errorf("status %d, output %q: %s", status, s.out.String(), s.notes.String())
	}
}

// TestInputOfTerminalEnds has the terminal lose an end of the input, as while a shell starts.
func TestInputOfTerminalEnds(t *testing.T) {
	s := newTrial(t, `stty -icanon; sleep 1; stty icanon; cat`, 1)
	s.Program.PTY, s.Stdin = true, strings.NewReader("")
	if status := s.run(t); status != 0 {
		t.Errorf("status %d, output %q: %s", status, s.out.String(), s.notes.String())
	}
}

// TestSIGTERMEndsTerminal ends a program that ignores SIGTERM, as interactive shells do.
func TestSIGTERMEndsTerminal(t *testing.T) {
	s := newTrial(t, `trap '' TERM; echo ready; while read line; do :; done; sleep 60`, 1)
	in, keys := io.Pipe()
	defer keys.Close()
	signals := make(chan os.Signal, 1)
	s.Program.PTY, s.Stdin, s.Signals = true, in, signals
	s.out.added = func(text string) {
		if text == "ready\r\n" {
			signals <- syscall.SIGTERM
		}
	}
	if status := s.run(t); status != 128+int(syscall.SIGTERM) || !strings.Contains(s.notes.String(), "stopped by a signal: terminated") {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
}

// TestUnbufferedSendsBytesAtOnce answers a prompt that has no newline.
func TestUnbufferedSendsBytesAtOnce(t *testing.T) {
	s := newTrial(t, `[ -t 1 ] && [ -t 2 ] && printf 'name? '; read name; printf "hello\n$name"`, 1)
	s.Program.Unbuffered = true
	in, keys := io.Pipe()
	s.Stdin = in
	s.out.added = func(text string) {
		if text == "name? " {
			go keys.Write([]byte("rank\n"))
		}
	}
	if status := s.run(t); status != 0 || s.out.String() != "name? hello\nrank" {
		t.Errorf("status %d, output %q: %s", status, s.out.String(), s.notes.String())
	}
	keys.Close()
}

// TestBindings checks GPUs and CPUs of tasks.
func TestBindings(t *testing.T) {
	for _, c := range []struct {
		gpus step.GPUBinding
		want string
	}{
		{step.GPUBinding{}, "0 G0,G1,G2\n1 G0,G1,G2\n"},
		{step.GPUBinding{PerTask: 1}, "0 G0\n1 G1\n"},
		{step.GPUBinding{PerTask: 2}, "0 G0,G1\n1 G2\n"},
		{step.GPUBinding{Single: 2}, "0 G0\n1 G0\n"},
		{step.GPUBinding{Map: []int{2, 0}}, "0 G2\n1 G0\n"},
		{step.GPUBinding{Mask: []uint64{6}}, "0 G1,G2\n1 G1,G2\n"},
	} {
		s := newTrial(t, `echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES; [ $SLURM_STEP_GPUS = 4,5,7 ] && grep -q 'Cpus_allowed_list:.0$' /proc/self/status`, 2)
		own := &s.orders[0].Order.Nodes[0]
		own.GPUs, own.GPUIndexes = []string{"G0", "G1", "G2"}, []int32{4, 5, 7}
		s.Program.GPUs, s.Program.CPUs = c.gpus, [][]int{{0}}
		if status := s.run(t); status != 0 || sortedLines(s.out.String()) != c.want {
			t.Errorf("%+v: status %d, output %q, want %q: %s", c.gpus, status, s.out.String(), c.want, s.notes.String())
		}
	}
}
