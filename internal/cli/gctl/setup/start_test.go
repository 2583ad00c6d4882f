package setup

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
)

// TestHowToStartDaemons checks the commands for a host without systemd.
func TestHowToStartDaemons(t *testing.T) {
	got := startAdvice([]daemonFile{{"gctld", "/tmp/x.toml"}, {"gauthd", ""}})
	if !strings.Contains(got, "gctld --config /tmp/x.toml; and: ") || !strings.HasSuffix(got, "gauthd") {
		t.Error(got)
	}
}

// TestAddressThatOthersCanDial checks that a host name that resolves to loopback only is no address
// for others.
func TestAddressThatOthersCanDial(t *testing.T) {
	for _, c := range []struct{ address, own, want string }{
		{"10.0.0.1:7117", "ctl1", "10.0.0.1:7117"},
		{"ctl1.example:80", "ctl1", "ctl1.example:80"},
	} {
		if got, ok := advertised(t.Context(), c.address, c.own, anyHost); got != c.want || !ok {
			t.Errorf("%s: %s, %v", c.address, got, ok)
		}
	}
	got, ok := advertised(t.Context(), "localhost:7117", "localhost", anyHost)
	host, port, err := net.SplitHostPort(got)
	if err != nil || port != "7117" || ok == (host == "localhost") || ok && net.ParseIP(host).IsLoopback() {
		t.Errorf("localhost: %s, %v", got, ok)
	}
	if got, ok := advertised(t.Context(), "localhost:7117", "localhost", "127.0.0.1:9"); ok {
		t.Errorf("a way that is the loopback: %s", got)
	}
}

// TestReachable checks that the settings lead others to an address at which the controller listens.
func TestReachable(t *testing.T) {
	for _, c := range []struct{ listen, want string }{
		{":7117", `set advertise = "10.0.0.1:7117"`},
		{"0.0.0.0:7117", `set advertise = "10.0.0.1:7117"`},
		{"127.0.0.1:7117", `set advertise = "10.0.0.1:7117" and listen = ":7117"`},
		{"10.0.0.9:7117", `set advertise = "10.0.0.9:7117"`},
	} {
		if got := reachable(c.listen, "10.0.0.1:7117"); got != c.want {
			t.Errorf("%s: %s, want %s", c.listen, got, c.want)
		}
	}
}

// TestJoinNamesTheAddressOfTheToken checks the message on a host that joins, which has no file that
// names the controllers.
func TestJoinNamesTheAddressOfTheToken(t *testing.T) {
	j := joining{address: "ctl1:7117"}
	if err := j.refused(connect.NewError(connect.CodeUnavailable, errors.New("refuses connections"))); !strings.Contains(hint.Of(err), "check that gctld is running at ctl1:7117 and") {
		t.Errorf("unavailable: %v", err)
	}
	if err := j.refused(connect.NewError(connect.CodeUnavailable, fmt.Errorf("tls: %w", pki.ErrUntrusted))); !strings.HasPrefix(hint.Of(err), "ctl1:7117 is a controller of another cluster") {
		t.Errorf("another cluster: %v", err)
	}
	if err := j.refused(connect.NewError(connect.CodePermissionDenied, errors.New("used"))); hint.Of(err) != "" {
		t.Errorf("denied: %v", err)
	}
}
