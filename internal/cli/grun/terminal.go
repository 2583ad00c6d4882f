package grun

import (
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/step/launch"
)

// terminal sets how messages are printed and, with --pty, has the terminal pass on every key. The
// returned function restores it.
func (p command) terminal(r *request, c *launch.Config) (restore func()) {
	raw := false
	c.Note = func(bad bool, text string) {
		if r.quiet && !bad || p.forwards != nil { // the program of a step that forwards is of no interest
			return
		}
		out := p.Stderr
		if raw {
			out = &rawWriter{p.Stderr}
		}
		q := *p.Process
		q.Stderr = out
		if bad {
			q.Complain(text, "")
		} else {
			q.Note("%s", text)
		}
	}
	in, ok := p.Stdin.(*os.File)
	if !r.program.PTY || !ok {
		return func() {}
	}
	fd := int(in.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil { // no terminal
		return func() {}
	}
	c.Size = func() (rows, cols uint16) {
		size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err != nil {
			return 0, 0
		}
		return size.Row, size.Col
	}
	c.Program.Rows, c.Program.Cols = c.Size()
	mode := *before
	mode.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	mode.Oflag &^= unix.OPOST
	mode.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	mode.Cflag = mode.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(fd, unix.TCSETS, &mode) != nil {
		return func() {}
	}
	raw, c.DetachKeys = true, r.detachKeys
	return sync.OnceFunc(func() {
		_ = unix.IoctlSetTermios(fd, unix.TCSETSW, before) // the terminal may be gone
		raw = false
	})
}

// rawWriter writes lines to a terminal that does not process output.
type rawWriter struct{ to io.Writer }

func (w *rawWriter) Write(p []byte) (int, error) {
	_, err := io.WriteString(w.to, strings.ReplaceAll(string(p), "\n", "\r\n"))
	return len(p), err
}
