package health

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// portPolls is how many polls in a row a port may not be active.
	portPolls = 3
	// portWindow is the interval in which two flaps, or two breaches of a limit, drain the node.
	portWindow = 5 * time.Minute
	// portRest is how long a port must be quiet before they are forgotten.
	portRest = 30 * time.Minute
	// counterInterval is the interval between two reads of the error counters.
	counterInterval = time.Minute
)

// counterLimit is the tolerated growth of a counter in counterInterval.
type counterLimit struct {
	file string
	most uint64
}

// counterLimits lists the counters of a port, after NVSentinel.
func counterLimits() []counterLimit {
	return []counterLimit{
		{"counters/excessive_buffer_overrun_errors", 0},
		{"counters/local_link_integrity_errors", 0},
		{"hw_counters/rnr_nak_retry_err", 0},
		{"counters/symbol_error", 2},
		{"counters/link_error_recovery", 5},
		{"counters/port_rcv_errors", 600},
		{"hw_counters/local_ack_timeout_err", 60},
		{"counters/port_xmit_discards", 6000},
	}
}

// linkDowned is the counter of flaps.
const linkDowned = "counters/link_downed"

// InfiniBand is the health of a node's InfiniBand and RoCE ports. It is not safe for concurrent use.
type InfiniBand struct {
	root  string
	ports map[string]*port // by DEVICE/PORT; those that were active
	read  time.Time        // of the error counters
}

// port is a port that was active once.
type port struct {
	inactive int // polls in a row
	active   bool
	state    string
	downed   *uint64 // the last value; nil: not read yet
	flaps    []time.Time
	breaches []time.Time
	worst    string // the last counter that grew too fast
	counters map[string]uint64
}

// NewInfiniBand returns the ports below root, /sys/class/infiniband. known are ports that were active
// before, by DEVICE/PORT.
func NewInfiniBand(root string, known []string) *InfiniBand {
	ib := &InfiniBand{root: root, ports: map[string]*port{}}
	for _, name := range known {
		ib.ports[name] = &port{active: true, counters: map[string]uint64{}}
	}
	return ib
}

// Ports returns the names of the ports that were active.
func (ib *InfiniBand) Ports() []string { return slices.Sorted(maps.Keys(ib.ports)) }

// Poll reads all ports and returns the conditions of the node.
func (ib *InfiniBand) Poll(now time.Time) (list []cluster.Condition) {
	states, _ := filepath.Glob(filepath.Join(ib.root, "*", "ports", "*", "state")) // the pattern is valid
	for _, path := range states {
		dir := filepath.Dir(path)
		name := filepath.Base(filepath.Dir(filepath.Dir(dir))) + "/" + filepath.Base(dir)
		if ib.ports[name] == nil && strings.HasSuffix(word(path), "ACTIVE") {
			ib.ports[name] = &port{active: true, counters: map[string]uint64{}}
		}
	}
	counters := now.Sub(ib.read) >= counterInterval
	if counters {
		ib.read = now
	}
	for _, name := range ib.Ports() {
		device, number, _ := strings.Cut(name, "/")
		dir, p := filepath.Join(ib.root, device, "ports", number), ib.ports[name]
		p.poll(now, dir)
		if counters {
			p.count(now, dir)
		}
		if why := p.problem(now); why != "" {
			list = append(list, cluster.Condition{Cause: "infiniband", Effect: cluster.Drains, Message: fmt.Sprintf("InfiniBand port %s %s", name, why)})
		}
	}
	return list
}

// MissingPorts returns the condition of a node with fewer active ports than it should have.
func MissingPorts(have, want int) cluster.Condition {
	return cluster.Condition{Cause: "infiniband", Effect: cluster.Drains, Message: fmt.Sprintf("%d of %d InfiniBand ports have been active since the boot", have, want)}
}

// poll reads the state of a port. A missing device is not active.
func (p *port) poll(now time.Time, dir string) {
	p.state = word(filepath.Join(dir, "state"))
	was := p.active
	if p.active = strings.HasSuffix(p.state, "ACTIVE"); p.active {
		p.inactive = 0
	} else {
		p.inactive++
	}
	downed, known := number(filepath.Join(dir, linkDowned))
	grew := known && p.downed != nil && downed > *p.downed
	if known {
		p.downed = &downed
	}
	if was && !p.active || was && grew { // between two polls
		p.flaps = append(p.flaps, now)
	}
}

// count compares the error counters with their limits.
func (p *port) count(now time.Time, dir string) {
	for _, c := range counterLimits() {
		n, known := number(filepath.Join(dir, c.file))
		before, had := p.counters[c.file]
		if known && had && n > before && n-before > c.most {
			p.breaches = append(p.breaches, now)
			p.worst = fmt.Sprintf("%s grew by %d in a minute", filepath.Base(c.file), n-before)
		}
		if known {
			p.counters[c.file] = n
		}
	}
}

// problem returns why the port drains its node; "" if it does not.
func (p *port) problem(now time.Time) string {
	old := func(at time.Time) bool { return now.Sub(at) > portRest }
	p.flaps, p.breaches = slices.DeleteFunc(p.flaps, old), slices.DeleteFunc(p.breaches, old)
	switch {
	case p.inactive >= portPolls && p.state == "":
		return "is missing"
	case p.inactive >= portPolls:
		return "is " + p.state
	case tooFrequent(p.flaps):
		return fmt.Sprintf("lost its link %d times", len(p.flaps))
	case tooFrequent(p.breaches):
		return "has errors: " + p.worst
	}
	return ""
}

// tooFrequent reports whether two of the instants, which are sorted, are within portWindow.
func tooFrequent(list []time.Time) bool {
	for i := 1; i < len(list); i++ {
		if list[i].Sub(list[i-1]) <= portWindow {
			return true
		}
	}
	return false
}

// word returns the content of a file such as "4: ACTIVE" without its number; "" if it cannot be read.
func word(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	text := strings.TrimSpace(string(data))
	if _, after, numbered := strings.Cut(text, ": "); numbered {
		return after
	}
	return text
}

func number(path string) (uint64, bool) {
	n, err := strconv.ParseUint(word(path), 10, 64)
	return n, err == nil
}
