package containerd

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/greylag/greylag/internal/runtime"
)

// TestAway checks that an absent containerd is reported in one readable line, once for all failed
// calls.
func TestAway(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "c.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false) // as after containerd was killed
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	away, err := client.New(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	_, err = away.Version(limit(t))
	err = errgrpc.ToNative(err)
	for name, got := range map[string]error{
		"one call": unavailable(err), "two calls": unavailable(errors.Join(err, err)), "marked before": unavailable(unavailable(err)),
	} {
		want := "containerd: container runtime does not answer: dial unix " + socket + ": connect: connection refused"
		if got.Error() != want || !errors.Is(got, runtime.ErrUnavailable) {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	want := "containerd: container runtime does not answer: make container: dial unix " + socket + ": connect: connection refused"
	if got := unavailable(fmt.Errorf("make container: %w", err)); got.Error() != want {
		t.Errorf("in a call: %v, want %s", got, want)
	}
}
