package launch_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/daemon"
	"github.com/greylag/greylag/internal/step/launch"
	"github.com/greylag/greylag/internal/step/stream"
)

// started runs a step with grun alone, and returns a function that waits for its status.
func (s *trial) started(t *testing.T) (wait func() int) {
	t.Helper()
	status := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { status <- launch.Run(ctx, s.Config) }()
	t.Cleanup(cancel)
	return func() int { return <-status }
}

func (s *trial) dial(t *testing.T) net.Conn {
	t.Helper()
	raw, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	return raw
}

// join connects as a node.
func (s *trial) join(t *testing.T, key []byte, node int) *stream.Conn {
	t.Helper()
	conn, err := stream.Client(t.Context(), s.dial(t), s.orders[0].Order.Fingerprint)
	if err == nil {
		err = conn.Prove(key, node)
	}
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestForeignPeersAreRefused connects with a wrong key, as an unknown node, with bytes that are not
// TLS, with a frame of 4 GiB and silently, before the step's node does.
func TestForeignPeersAreRefused(t *testing.T) {
	s := newTrial(t, "echo done", 1)
	wait := s.started(t)
	silent := s.dial(t)
	wrong := s.join(t, make([]byte, stream.KeySize), 0)
	if _, err := wrong.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("wrong key: %v", err)
	}
	for _, node := range []int{1, 1 << 31} {
		if _, err := s.join(t, s.secret.Key, node).Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("node %d: %v", node, err)
		}
	}
	garbage := s.dial(t)
	if _, err := garbage.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(garbage); err != nil {
		t.Logf("garbage: %v", err)
	}
	if _, err := daemon.Run(t.Context(), s.orders[0]); err != nil {
		t.Errorf("the real node: %v", err)
	}
	if status := wait(); status != 0 || s.out.String() != "done\n" {
		t.Errorf("status %d, output %q: %s", status, s.out.String(), s.notes.String())
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("a silent peer got an answer")
	}
}

// TestNodeChecksTheCertificate has a node reach another program than grun.
func TestNodeChecksTheCertificate(t *testing.T) {
	s := newTrial(t, "true", 1)
	s.started(t)
	s.orders[0].Order.Fingerprint = strings.Repeat("0", 64)
	if _, err := daemon.Run(t.Context(), s.orders[0]); !errors.Is(err, stream.ErrDenied) {
		t.Errorf("%v", err)
	}
}

// TestFirstConnectionOfANodeCounts has a node connect twice.
func TestFirstConnectionOfANodeCounts(t *testing.T) {
	s := newTrial(t, "true", 1)
	wait := s.started(t)
	first := s.join(t, s.secret.Key, 0)
	if f, err := first.Receive(); err != nil || f.Kind != stream.Start {
		t.Fatalf("%v: %v", f.Kind, err)
	}
	if _, err := s.join(t, s.secret.Key, 0).Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("second connection: %v", err)
	}
	if err := errors.Join(first.SendValue(stream.Exited, step.Exit{Code: 4}), first.Send(stream.Done, 0)); err != nil {
		t.Fatal(err)
	}
	if status := wait(); status != 4 {
		t.Errorf("status %d", status)
	}
}

// TestBadFramesEndTheStep has the only node send what no node sends.
func TestBadFramesEndTheStep(t *testing.T) {
	huge := make([]byte, stream.HeaderSize)
	huge[0] = byte(stream.Stdout)
	binary.BigEndian.PutUint32(huge[5:], 1<<32-1)
	for name, send := range map[string]func(*stream.Conn) error{
		"4 GiB":        func(c *stream.Conn) error { _, err := c.Write(huge); return err },
		"kind of grun": func(c *stream.Conn) error { return c.Send(stream.Signal, 9) },
		"foreign task": func(c *stream.Conn) error { return c.SendData(stream.Stdout, 7, []byte("x\n")) },
		"foreign exit": func(c *stream.Conn) error { return c.SendValue(stream.Exited, step.Exit{Rank: 7}) },
		"no value":     func(c *stream.Conn) error { return c.SendInPlace(stream.Exited, 0, make([]byte, 12)) },
		"early end":    func(c *stream.Conn) error { return c.Close() },
		"end in a frame": func(c *stream.Conn) error {
			_, err := c.Write([]byte{byte(stream.Stdout), 0})
			return errors.Join(err, c.Close())
		},
	} {
		s := newTrial(t, "true", 1)
		wait := s.started(t)
		if err := send(s.join(t, s.secret.Key, 0)); err != nil {
			t.Fatal(err)
		}
		if status := wait(); status != 1 || s.out.String() != "" || s.notes.String() != "n1: the connection to the node ended\n" {
			t.Errorf("%s: status %d, output %q: %s", name, status, s.out.String(), s.notes.String())
		}
	}
}

// TestLostNode loses one of two nodes, with and without --no-kill.
func TestLostNode(t *testing.T) {
	for _, noKill := range []bool{false, true} {
		s := newTrial(t, "echo ready; if read line; then exit 5; fi; exec sleep 600", 1, 1)
		ready := make(chan struct{})
		s.out.added = func(string) { close(ready) }
		s.NoKill = noKill
		reader, writer := io.Pipe()
		s.Stdin = reader
		wait := s.started(t)
		status := make(chan int, 1)
		go func() {
			code, _ := daemon.Run(t.Context(), s.orders[0])
			status <- code
		}()
		second := s.join(t, s.secret.Key, 1)
		if f, err := second.Receive(); err != nil || f.Kind != stream.Start {
			t.Fatalf("%v: %v", f.Kind, err)
		}
		<-ready
		second.Close()
		want, ended := 1, 143
		if noKill {
			want, ended = 5, 5
			if _, err := writer.Write([]byte("go on\n")); err != nil {
				t.Fatal(err)
			}
		}
		if got, code := wait(), <-status; got != want || code != ended || s.notes.String()[:3] != "n2:" {
			t.Errorf("no kill %v: status %d, node's %d: %s", noKill, got, code, s.notes.String())
		}
		writer.Close()
	}
}

// TestLosingGrunEndsTheTasks kills grun's side of the connection.
func TestLosingGrunEndsTheTasks(t *testing.T) {
	s := newTrial(t, "echo started; exec sleep 600", 2)
	ctx, cancel := context.WithCancel(t.Context())
	s.out.added = func(text string) {
		if strings.Count(text, "started") == 2 {
			cancel()
		}
	}
	ended := make(chan int, 1)
	go func() {
		code, _ := daemon.Run(t.Context(), s.orders[0])
		ended <- code
	}()
	launch.Run(ctx, s.Config)
	if code := <-ended; code != 143 {
		t.Errorf("node's status %d", code)
	}
}

// TestNodeThatDoesNotCome gives up after a time.
func TestNodeThatDoesNotCome(t *testing.T) {
	s := newTrial(t, "exec sleep 600", 1, 1)
	s.orders, s.Connect = s.orders[:1], 1
	if status := s.run(t); status != 1 || !strings.Contains(s.notes.String(), "the step did not start on ") {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
}

// TestEndedStepIsNotAwaited has the controllers say that the step has ended.
func TestEndedStepIsNotAwaited(t *testing.T) {
	s := newTrial(t, "exec sleep 600", 1, 1)
	s.orders, s.Connect = s.orders[:1], 2*time.Second
	s.Ended = func(context.Context) string { return "step 12.3 has ended" }
	if status := s.run(t); status != 1 || s.notes.String() != "step 12.3 has ended\n" {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
}
