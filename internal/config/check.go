package config

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/hostlist"
)

// DefaultPort is where controllers listen: API and raft on one port.
const DefaultPort = "7117"

// checker collects what is wrong with decoded values, blaming the line that set them.
type checker struct {
	main   string // file to blame where no line set the value
	doc    *document
	faults []Fault
}

func (c *checker) fault(key, format string, args ...any) {
	at, set := c.doc.places[key]
	if element := strings.LastIndexByte(key, ']') + 1; !set {
		at, set = c.doc.places[key[:element]] // a key that is missing in a list's table
	}
	if !set {
		at.file = c.main
	}
	c.faults = append(c.faults, Fault{at.file, at.line, key, fmt.Sprintf(format, args...)})
}

// absolute wants a path from the root.
func (c *checker) absolute(key, path string) {
	if !filepath.IsAbs(path) {
		c.fault(key, "%q is not a path from the root", path)
	}
}

// atLeast wants a duration of a size that can work.
func (c *checker) atLeast(key string, v, least time.Duration) {
	if v < least {
		c.fault(key, "%v is too short, at least %v", v, least)
	}
}

// between wants a number in bounds.
func (c *checker) between(key string, v, least, most int) {
	if v < least || v > most {
		c.fault(key, "%d is out of range, %d to %d", v, least, most)
	}
}

// name wants a name that can stand in a certificate and in a host list.
func (c *checker) name(key, name string) {
	if name == "" || len(name) > 253 || strings.Trim(name, ".-_") != name {
		c.fault(key, "%q is not a host name", name)
		return
	}
	for _, r := range []byte(name) {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.IndexByte(".-_", r) >= 0) {
			c.fault(key, "%q is not a host name: %q cannot stand in one", name, r)
			return
		}
	}
}

// word wants a short name of letters, digits, dots, dashes and underscores.
func (c *checker) word(key, text string) {
	if text == "" || len(text) > 64 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
		c.fault(key, "%q is not a word of letters, digits, dots, dashes and underscores", text)
	}
}

// address wants HOST:PORT; an empty host is for listening only.
func (c *checker) address(key, addr string, listen bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		c.fault(key, "%q is not HOST:PORT", addr)
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 && !listen {
		c.fault(key, "%q has no valid port", addr)
	}
	if ip := net.ParseIP(host); !listen && (host == "" || ip != nil && ip.IsUnspecified()) {
		c.fault(key, "%q names no host that others can dial", addr)
	}
}

// addresses expands host lists such as ctl[1-3] or ctl[1-3]:7117 into HOST:PORT each.
func (c *checker) addresses(key string, list []string) []string {
	if len(list) == 0 {
		c.fault(key, "names no controller")
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
				c.fault(at, "%q is not a host, HOST:PORT or host list: %v", text, err)
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

// nodeLists wants host lists, or "ALL".
func (c *checker) nodeLists(key string, list []string) {
	for i, expr := range list {
		if expr == "ALL" {
			continue
		}
		if _, err := hostlist.Expand(expr); err != nil {
			c.fault(key+"["+strconv.Itoa(i)+"]", "%v", err)
		}
	}
}

// hostName is this host's full name, and its first label, by which nodes are known.
func (c *checker) hostName() (full, short string) {
	full, err := os.Hostname()
	if err != nil || full == "" {
		full = "localhost"
	}
	short, _, _ = strings.Cut(full, ".")
	return full, short
}
