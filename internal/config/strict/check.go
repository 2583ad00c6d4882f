package strict

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/hostlist"
)

// Checker collects faults of decoded values, each with the line that set the value.
type Checker struct {
	main   string // the file of faults in values that no line set
	doc    *document
	faults []Fault
}

// Fault reports a problem with the value of a key, such as raft.reserve or node[2].cpus.
func (c *Checker) Fault(key, format string, args ...any) {
	at, set := c.doc.places[key]
	if element := strings.LastIndexByte(key, ']') + 1; !set {
		at, set = c.doc.places[key[:element]] // the key is missing in a table of a list
	}
	if !set {
		at.file = c.main
	}
	c.faults = append(c.faults, Fault{at.file, at.line, key, fmt.Sprintf(format, args...)})
}

// Absolute requires an absolute path.
func (c *Checker) Absolute(key, path string) {
	if !filepath.IsAbs(path) {
		c.Fault(key, "%q is not an absolute path", path)
	}
}

// AtLeast requires a duration of a minimum.
func (c *Checker) AtLeast(key string, v, least time.Duration) {
	if v < least {
		c.Fault(key, "%v is too short, at least %v", v, least)
	}
}

// Between requires a number in a range.
func (c *Checker) Between(key string, v, least, most int) {
	if v < least || v > most {
		c.Fault(key, "%d is out of range, %d to %d", v, least, most)
	}
}

// HostName requires a name that a certificate and a host list may contain.
func (c *Checker) HostName(key, name string) {
	if name == "" || len(name) > 253 || strings.Trim(name, ".-_") != name {
		c.Fault(key, "%q is not a host name", name)
		return
	}
	for _, r := range []byte(name) {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.IndexByte(".-_", r) >= 0) {
			c.Fault(key, "%q is not a host name: it contains %q", name, r)
			return
		}
	}
}

// Word requires a short name of letters, digits, dots, dashes and underscores.
func (c *Checker) Word(key, text string) {
	if text == "" || len(text) > 64 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
		c.Fault(key, "%q is not a word of letters, digits, dots, dashes and underscores", text)
	}
}

// NodeLists requires host lists, or "ALL".
func (c *Checker) NodeLists(key string, list []string) {
	for i, expr := range list {
		if expr == "ALL" {
			continue
		}
		if _, err := hostlist.Expand(expr); err != nil {
			c.Fault(key+"["+strconv.Itoa(i)+"]", "%v", err)
		}
	}
}

// Count returns the number of faults so far, those of decoding among them.
func (c *Checker) Count() int { return len(c.faults) }

// IsSet reports whether a file sets a key.
func (c *Checker) IsSet(key string) bool {
	_, set := c.doc.places[key]
	return set
}
