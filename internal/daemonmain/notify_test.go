package daemonmain

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestNotify plays systemd: a daemon reports that it is ready, and then that it is alive until its
// check hangs.
func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "3000")
	got := func() string {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 20)
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	ctx, stop := context.WithCancel(t.Context())
	checks, hung := 0, make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Watchdog(ctx, func() {
			if checks++; checks == 3 {
				close(hung)
				<-ctx.Done()
			}
		})
	}()
	for _, want := range []string{Ready, alive} {
		if state := got(); state != want {
			t.Fatalf("%q, want %q", state, want)
		}
	}
	<-hung
	stop()
	<-ended
}

// TestNoWatchdog checks that a unit without WatchdogSec= gets one report.
func TestNoWatchdog(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "")
	checks := 0
	Watchdog(t.Context(), func() { checks++ })
	if checks != 1 {
		t.Errorf("%d checks", checks)
	}
}
