package launch_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/daemon"
	"github.com/greylag/greylag/internal/step/launch"
	"github.com/greylag/greylag/internal/step/stream"
)

// detachedStep is a step with a terminal and the programs that have it in turn.
type detachedStep struct {
	*trial
	orders chan step.Order
	ended  chan int // status of gstepd
}

// newDetached starts the node of a step that runs a shell script in a terminal.
func newDetached(t *testing.T, script string) *detachedStep {
	t.Helper()
	d := &detachedStep{trial: newTrial(t, script, 1), orders: make(chan step.Order), ended: make(chan int, 1)}
	d.Program.PTY, d.Program.Rows, d.Program.Cols = true, 20, 60
	config := d.trial.orders[0]
	config.Orders = d.orders
	go func() {
		status, err := daemon.Run(t.Context(), config)
		if err != nil {
			t.Error(err)
		}
		d.ended <- status
	}()
	return d
}

// client is one program that has the terminal.
type client struct {
	launch.Config
	keys    *io.PipeWriter
	out     *buffer
	notes   *buffer
	status  chan int
	signals chan os.Signal
	cancel  context.CancelFunc
}

// start runs a program with the terminal.
func (d *detachedStep) start(t *testing.T, c launch.Config) *client {
	t.Helper()
	in, keys := io.Pipe()
	x := &client{Config: c, keys: keys, out: &buffer{}, notes: &buffer{}, status: make(chan int, 1), signals: make(chan os.Signal, 1)}
	x.Stdin, x.Stdout, x.Signals = in, x.out, x.signals
	x.Note = func(_ bool, text string) { fmt.Fprintln(x.notes, text) }
	sequence, err := launch.ParseDetachKeys(launch.DefaultDetachKeys)
	if err != nil {
		t.Fatal(err)
	}
	x.DetachKeys = sequence
	ctx, cancel := context.WithCancel(t.Context())
	x.cancel = cancel
	t.Cleanup(cancel)
	go func() { x.status <- launch.Run(ctx, x.Config) }()
	return x
}

// attach runs another program, with a terminal of this height.
func (d *detachedStep) attach(t *testing.T, rows uint16) *client {
	t.Helper()
	secret, err := stream.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := d.Config
	c.Attach, c.Listener, c.Secret = true, listener, secret
	c.Program = step.Program{PTY: true, Args: [][]string{nil}, Rows: rows, Cols: 70}
	x := d.start(t, c)
	order := d.trial.orders[0].Order
	order.Contact, order.Fingerprint, order.Key = []string{listener.Addr().String()}, hex.EncodeToString(secret.Fingerprint), hex.EncodeToString(secret.Key)
	d.orders <- order
	return x
}

// until waits for text in the output.
func (x *client) until(t *testing.T, text string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(x.out.String(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("no %q in %q; notes: %s", text, x.out.String(), x.notes.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// gone waits for the end of the program and checks its status.
func (x *client) gone(t *testing.T, want int, note string) {
	t.Helper()
	select {
	case status := <-x.status:
		if status != want || !strings.Contains(x.notes.String(), note) {
			t.Errorf("status %d, want %d; notes %q, want %q", status, want, x.notes.String(), note)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("the program did not end; output %q, notes %q", x.out.String(), x.notes.String())
	}
}

const echoing = `trap 'stty size' WINCH; trap 'echo quit' QUIT; stty -echo; echo ready
	while :; do read line || continue; [ "$line" = end ] && exit 3; echo "got $line"; done`

// TestDetachedStepContinues detaches by keys, attaches with another window size, sees the earlier output,
// and ends the step.
func TestDetachedStepContinues(t *testing.T) {
	d := newDetached(t, echoing)
	first := d.start(t, d.Config)
	first.until(t, "ready\r\n")
	for _, keys := range []string{"one\r", "\x1ctwo\r", "\x1c", "dthree\r"} { // Ctrl-\ alone is passed on
		if _, err := first.keys.Write([]byte(keys)); err != nil {
			t.Fatal(err)
		}
		if text := map[string]string{"one\r": "got one\r\n", "\x1ctwo\r": "quit\r\n"}[keys]; text != "" {
			first.until(t, text)
		}
	}
	first.gone(t, launch.StatusDetached, "gctl attach 12.3")
	second := d.attach(t, 33)
	second.until(t, "33 70\r\n")
	if !strings.Contains(second.out.String(), "ready\r\ngot one\r\n") || strings.Contains(second.out.String(), "three") {
		t.Errorf("output after attaching: %q", second.out.String())
	}
	if _, err := second.keys.Write([]byte("four\rend\r")); err != nil {
		t.Fatal(err)
	}
	second.until(t, "got four\r\n")
	second.gone(t, 3, "")
	if status := <-d.ended; status != 3 {
		t.Errorf("status of gstepd %d", status)
	}
}

// TestAttachReplacesTheFirst attaches while another program has the terminal.
func TestAttachReplacesTheFirst(t *testing.T) {
	d := newDetached(t, echoing)
	first := d.start(t, d.Config)
	first.until(t, "ready")
	second := d.attach(t, 33)
	first.gone(t, launch.StatusDetached, "detached: another command attached to step 12.3")
	second.until(t, "33 70")
	third := d.attach(t, 44)
	second.gone(t, launch.StatusDetached, "another command")
	third.until(t, "44 70")
	if _, err := third.keys.Write([]byte("end\r")); err != nil {
		t.Fatal(err)
	}
	third.gone(t, 3, "")
	<-d.ended
}

// TestHangup loses the program: the step ends unless the user wants to keep it.
func TestHangup(t *testing.T) {
	for _, keep := range []bool{false, true} {
		for _, signal := range []bool{false, true} {
			d := newDetached(t, echoing)
			c := d.Config
			c.Program.Keep, c.KeepOnHangup = keep, keep
			first := d.start(t, c)
			first.until(t, "ready")
			switch {
			case signal && keep:
				first.signals <- syscall.SIGHUP
				first.gone(t, launch.StatusDetached, "detached")
			case signal:
				first.signals <- syscall.SIGHUP
				first.gone(t, 128+int(syscall.SIGHUP), "Hangup")
			default:
				first.cancel()
				first.gone(t, 0, "")
			}
			if keep {
				second := d.attach(t, 33)
				second.until(t, "33 70")
				if _, err := second.keys.Write([]byte("end\r")); err != nil {
					t.Fatal(err)
				}
				second.gone(t, 3, "")
			}
			if status := <-d.ended; keep != (status == 3) {
				t.Errorf("keep %t, signal %t: status of gstepd %d", keep, signal, status)
			}
		}
	}
}

// TestDetachedStepKeepsRunning detaches a step that writes more than the replay holds, and asks the
// terminal a question. It ends while no program has it, within the time limit.
func TestDetachedStepKeepsRunning(t *testing.T) {
	d := newDetached(t, `stty -echo; echo first; printf '\033[6n'; read go; seq -f 'line %.0f' 50000; echo last; sleep 600`)
	d.Program.Limit = 3 * time.Second
	first := d.start(t, d.Config)
	first.until(t, "\x1b[6n")
	if _, err := first.keys.Write([]byte("go\r\x1cd")); err != nil {
		t.Fatal(err)
	}
	first.gone(t, launch.StatusDetached, "")
	second := d.attach(t, 33)
	second.until(t, "line 50000\r\nlast\r\n")
	if text := second.out.String(); strings.Contains(text, "\x1b[6n") && !strings.Contains(text, "first") {
		t.Errorf("the replay asks the terminal: %q", text[:100])
	}
	if _, err := second.keys.Write([]byte("\x1cd")); err != nil {
		t.Fatal(err)
	}
	second.gone(t, launch.StatusDetached, "")
	select {
	case status := <-d.ended:
		if status != 128+int(syscall.SIGTERM) {
			t.Errorf("status %d", status)
		}
	case <-time.After(20 * time.Second):
		t.Error("the time limit did not end the step")
	}
}

// TestSeveralNodesAreNotDetached presses the keys, which the task gets.
func TestSeveralNodesAreNotDetached(t *testing.T) {
	s := newTrial(t, `[ $SLURM_PROCID = 0 ] || exit 0; stty -echo; trap 'exit 4' QUIT; echo ready; read line; exit 5`, 1, 1)
	s.Program.PTY, s.DetachKeys = true, []byte("\x1cd")
	var once sync.Once
	in, keys := io.Pipe()
	s.Stdin = in
	s.out.added = func(text string) {
		if strings.Contains(text, "ready") {
			once.Do(func() { go keys.Write([]byte("\x1cdx\r")) })
		}
	}
	if status := s.run(t); status != 4 {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
}

// TestDetachKeys reads names of keys.
func TestDetachKeys(t *testing.T) {
	for text, want := range map[string]string{
		`ctrl-\,d`: "\x1cd", "ctrl-P,ctrl-q": "\x10\x11", "ctrl-@": "\x00", "a,b": "ab", "none": "", "ctrl-": "!", "ab": "!", "": "!", "ctrl-é": "!",
	} {
		got, err := launch.ParseDetachKeys(text)
		if err != nil {
			got = []byte("!")
		}
		if string(got) != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
