package grun

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/config"
)

// openTerminal returns the two ends of a terminal of 40 by 120.
func openTerminal(t *testing.T) (keys, terminal *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keys.Close() })
	fd := int(keys.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120})
	}
	if err != nil {
		t.Fatal(err)
	}
	if terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return keys, terminal
}

// TestTerminalIsRestored runs a task in a terminal, which fails or is killed. While it
// runs, the user's terminal passes on every key; afterwards it is as before.
func TestTerminalIsRestored(t *testing.T) {
	for _, c := range []struct {
		program string
		status  int
	}{{"stty size; exit 3", 3}, {"stty size; kill -9 $$", 137}} {
		_, terminal := openTerminal(t)
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
