package secret

import (
	"bytes"
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/cli/ui/terminaltest"
)

// TestATerminalDoesNotDisplayTheValue types a value, or interrupts the command. The terminal is as before
// afterwards.
func TestATerminalDoesNotDisplayTheValue(t *testing.T) {
	for _, typed := range []string{"hf_0123\n", ""} {
		keys, terminal := terminaltest.Open(t, 24, 80)
		mode := func() unix.Termios {
			m, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			return *m
		}
		before := mode()
		var prompt bytes.Buffer
		x := commands{&tool.Tool{Process: &ui.Process{Stdin: terminal, Stderr: &prompt}}}
		type result struct {
			value []byte
			err   error
		}
		done := make(chan result, 1)
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		go func() {
			value, err := x.value(ctx, "token")
			done <- result{value, err}
		}()
		for mode().Lflag&unix.ECHO != 0 {
			time.Sleep(time.Millisecond)
		}
		if typed == "" {
			interrupt()
		} else if _, err := keys.WriteString(typed); err != nil {
			t.Fatal(err)
		}
		r := <-done
		if typed != "" && (r.err != nil || string(r.value) != "hf_0123") || typed == "" && !ui.IsExit(r.err) {
			t.Errorf("typed %q: %q, %v", typed, r.value, r.err)
		}
		if prompt.String() != "value of secret token: \n" || mode() != before {
			t.Errorf("prompt %q, mode %+v, before %+v", prompt.String(), mode(), before)
		}
		if shown := available(t, keys); bytes.Contains(shown, []byte("hf_")) {
			t.Errorf("the terminal displays %q", shown)
		}
	}
}

// available returns what a terminal displays.
func available(t *testing.T, keys *os.File) []byte {
	t.Helper()
	fd := int(keys.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, _ := syscall.Read(fd, buf) // EAGAIN: nothing
	return buf[:max(n, 0)]
}
