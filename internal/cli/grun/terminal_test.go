package grun

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/cli/ui/terminaltest"
	"github.com/greylag/greylag/internal/config"
)

// TestTerminalIsRestored runs a task in a terminal, which fails or is killed. While it
// runs, the user's terminal passes on every key; afterwards it is as before.
func TestTerminalIsRestored(t *testing.T) {
	for _, c := range []struct {
		program string
		status  int
	}{{"stty size; exit 3", 3}, {"stty size; kill -9 $$", 137}} {
		_, terminal := terminaltest.Open(t, 40, 120)
		mode := func() *unix.Termios {
			m, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		before := *mode()
		var during unix.Termios
		out := &firstWrite{then: func() { during = *mode() }}
		var errs bytes.Buffer
		j := &job{}
		p := &ui.Process{
			Program: "grun", Args: []string{"--pty", "sh", "-c", c.program}, Stdin: terminal, Stdout: out, Stderr: &errs,
			Environ: []string{"PATH=/usr/bin:/bin", config.SocketEnv + "=/s", "GREYLAG_JOB_ID=12"},
			Dial:    func(config.Client) (ui.Cluster, error) { return j, nil },
		}
		status := Run(t.Context(), p)
		j.nodes.Wait()
		if status != c.status || !strings.Contains(out.String(), "40 120\r\n") {
			t.Errorf("%s: status %d, output %q: %s", c.program, status, out.String(), errs.String())
		}
		if during.Lflag&(unix.ECHO|unix.ICANON|unix.ISIG) != 0 {
			t.Errorf("%s: the terminal handles keys itself: %x", c.program, during.Lflag)
		}
		if after := *mode(); after != before {
			t.Errorf("%s: mode %+v, before %+v", c.program, after, before)
		}
	}
}

// firstWrite calls then at the first write.
type firstWrite struct {
	bytes.Buffer
	then func()
}

func (w *firstWrite) Write(p []byte) (int, error) {
	if w.Len() == 0 {
		w.then()
	}
	return w.Buffer.Write(p)
}
