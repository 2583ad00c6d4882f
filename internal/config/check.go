package config

import (
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/hostlist"
)

// DefaultPort is the port of controllers, for the API and for Raft.
const DefaultPort = "7117"

// checker checks the files of daemons and of commands.
type checker struct{ *strict.Checker }

// address requires HOST:PORT; only an address to listen at may have no host.
func (c *checker) address(key, addr string, listen bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		c.Fault(key, "%q is not HOST:PORT", addr)
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 && !listen {
		c.Fault(key, "%q has no valid port", addr)
	}
	if ip := net.ParseIP(host); !listen && (host == "" || ip != nil && ip.IsUnspecified()) {
		c.Fault(key, "%q names no host that others can dial", addr)
	}
}

// addresses expands host lists such as ctl[1-3] or ctl[1-3]:7117 into HOST:PORT each.
func (c *checker) addresses(key string, list []string) []string {
	if len(list) == 0 {
		c.Fault(key, "contains no controller")
	}
	var all []string
	for i, text := range list {
		at := key + "[" + strconv.Itoa(i) + "]"
		if ip := net.ParseIP(strings.Trim(text, "[]")); ip != nil {
			all = append(all, net.JoinHostPort(ip.String(), DefaultPort))
			continue
		}
		names := []string{text}
		if host, _, err := net.SplitHostPort(text); err != nil || net.ParseIP(host) == nil { // not [v6]:port
			if names, err = hostlist.Expand(text); err != nil || len(names) == 0 {
				c.Fault(at, "%q is not a host, HOST:PORT or host list: %v", text, err)
				continue
			}
		}
		for _, n := range names {
			if strings.LastIndexByte(n, ':') < 0 {
				n += ":" + DefaultPort
			}
			c.address(at, n, false)
			all = append(all, n)
		}
	}
	return all
}

// hostName returns the full name of this host, and its first label, which is the name of a node.
func hostName() (full, short string) {
	full, err := os.Hostname()
	if err != nil || full == "" {
		full = "localhost"
	}
	short, _, _ = strings.Cut(full, ".")
	return full, short
}
