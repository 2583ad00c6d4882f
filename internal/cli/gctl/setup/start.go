package setup

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
)

// overlap reports whether two lists have an element in common.
func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// daemonFile is a daemon and its configuration file, "" for the standard one.
type daemonFile struct{ program, file string }

// systemdRuns reports whether systemd is the service manager of this host (sd_booted(3)).
func systemdRuns() bool {
	info, err := os.Stat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// startAdvice returns how to start daemons: as services, or where systemd does not run or they read
// files that their units do not name, by their own commands, which stay in the foreground.
func startAdvice(systemd bool, daemons ...daemonFile) string {
	var units, commands []string
	for _, d := range daemons {
		systemd = systemd && d.file == ""
		units = append(units, d.program)
		path, err := tool.FindProgram(d.program)
		if err != nil {
			path = d.program
		}
		if d.file != "" {
			path += " --config " + d.file
		}
		commands = append(commands, path)
	}
	if systemd {
		all := strings.Join(units, " ")
		return "start it: systemctl enable --now " + all + "; if it is already running: systemctl restart " + all
	}
	return "start or restart it in the foreground or under a supervisor: " + strings.Join(commands, "; and: ")
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
