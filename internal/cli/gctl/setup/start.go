package setup

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/hint"
)

// overlap reports whether two lists have an element in common.
func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// daemonFile is a daemon and its configuration file, "" for the standard one.
type daemonFile struct{ program, file string }

// startDaemons enables the units of daemons and starts or restarts them. It returns false, and prints
// how to start them, where their units cannot do that: systemd does not run, the units are not
// installed, or a daemon reads another file than its unit.
func (t commands) startDaemons(ctx context.Context, daemons ...daemonFile) (bool, error) {
	var units []string
	for _, d := range daemons {
		units = append(units, d.program+".service")
		if d.file != "" || !tool.SystemdRuns() || systemctl(ctx, nil, "cat", d.program+".service") != nil {
			t.Note("%s", startAdvice(daemons))
			return false, nil
		}
	}
	for _, verb := range []string{"enable", "restart"} {
		if err := systemctl(ctx, t.Stderr, append([]string{verb}, units...)...); err != nil {
			return false, hint.New(fmt.Errorf("systemctl %s %s: %w", verb, strings.Join(units, " "), err), "check the log: journalctl -u "+strings.Join(units, " -u "))
		}
	}
	t.Note("enabled and started: %s", strings.Join(units, ", "))
	return true, nil
}

// systemctl runs systemctl(1).
func systemctl(ctx context.Context, stderr io.Writer, args ...string) error {
	command := exec.CommandContext(ctx, "systemctl", append([]string{"--quiet"}, args...)...)
	command.Stderr = stderr
	return command.Run()
}

// startAdvice returns the commands that run daemons in the foreground.
func startAdvice(daemons []daemonFile) string {
	var all []string
	for _, d := range daemons {
		path, err := tool.FindProgram(d.program)
		if err != nil {
			path = d.program
		}
		if d.file != "" {
			path += " --config " + d.file
		}
		all = append(all, path)
	}
	return "start or restart in the foreground or under a supervisor: " + strings.Join(all, "; and: ")
}

// lookupTime limits the lookup of this host's address.
const lookupTime = 3 * time.Second

// advertised returns the address, HOST:PORT, at which others can dial this controller. That is
// address, unless its host is the name of this host, own, and the name resolves to nothing or only to
// loopback: then it is the local address of a connection to toward. ok is false if that is unknown
// too.
func advertised(ctx context.Context, address, own, toward string) (at string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != own {
		return address, err == nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	found, _ := net.DefaultResolver.LookupIPAddr(ctx, host) // an error means none
	if slices.ContainsFunc(found, func(a net.IPAddr) bool { return !a.IP.IsLoopback() }) {
		return address, true
	}
	conn, err := net.Dial("udp", toward) // sends nothing
	if err != nil {
		return address, false
	}
	defer conn.Close()
	local, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if ip := net.ParseIP(local); err != nil || ip == nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
		return address, false
	}
	return net.JoinHostPort(local, port), true
}
