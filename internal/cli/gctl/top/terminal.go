package top

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
)

// Control sequences: another screen without a cursor, and back; one line; the rest of the screen.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	homeCursor  = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// watch draws screens until the user quits or ctx ends.
func (p *command) watch(ctx context.Context, c ui.Cluster) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer p.readKeys(cancel)()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	if _, err := io.WriteString(p.Stdout, enterScreen); err != nil {
		return err
	}
	defer io.WriteString(p.Stdout, leaveScreen) // the terminal may be gone
	changed := p.changes(ctx, c)
	for {
		s, err := p.fetch(ctx, c)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.draw(s); err != nil {
			return err
		}
		drawn := time.Now()
		select {
		case <-changed:
		case <-resized:
			continue
		case <-time.After(p.every):
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(time.Until(drawn.Add(leastPause))):
		case <-ctx.Done():
			return nil
		}
	}
}

// draw writes one screen over the last one.
func (p *command) draw(s state) error {
	width, _ := p.Width()
	var out strings.Builder
	out.WriteString(homeCursor)
	for i, line := range p.screen(s, width, p.height()) {
		if i > 0 {
			out.WriteString("\r\n")
		}
		out.WriteString(line + clearLine)
	}
	out.WriteString(clearBelow)
	_, err := io.WriteString(p.Stdout, out.String())
	return err
}

// height returns the lines of the terminal.
func (p *command) height() int {
	if f, ok := p.Stdout.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Row > 0 {
			return int(size.Row)
		}
	}
	return defaultRows
}

// changes reports changes of the user's jobs until ctx ends. A failed watch leaves the interval: the
// next screen reports a cluster that does not answer.
func (p *command) changes(ctx context.Context, c ui.Cluster) <-chan struct{} {
	changed := make(chan struct{}, 1)
	if p.Read() != nil { // a watch needs a leader
		return changed
	}
	go func() {
		caughtUp := false
		_ = c.Watch(ctx, &greylagv1.WatchJobsRequest{Filter: &greylagv1.Filter{Mine: true}}, func(m *greylagv1.WatchJobsResponse) error {
			if caughtUp {
				select {
				case changed <- struct{}{}:
				default: // one is noted already
				}
			}
			caughtUp = caughtUp || m.CaughtUp
			return nil
		})
	}()
	return changed
}

// readKeys calls quit when the user presses q, and returns a function that restores the terminal.
// Ctrl-C remains a signal.
func (p *command) readKeys(quit func()) (restore func()) {
	in, ok := p.Stdin.(*os.File)
	if !ok {
		return func() {}
	}
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil { // no terminal
		return func() {}
	}
	mode := *before
	mode.Lflag &^= unix.ECHO | unix.ICANON
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &mode) != nil {
		return func() {}
	}
	go func() {
		for key := make([]byte, 1); ; {
			n, err := in.Read(key)
			switch {
			case n == 1 && (key[0] == 'q' || key[0] == 'Q'):
				quit()
				return
			case err != nil && !errors.Is(err, syscall.EINTR):
				return
			}
		}
	}()
	return func() { _ = unix.IoctlSetTermios(int(in.Fd()), unix.TCSETSW, before) } // it may be gone
}
