package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// Switch is one network switch, or one NVLink block, of a topology file. The fabric is the set of
// switches.
type Switch struct {
	Name     string
	Nodes    []string // attached nodes; a node may be attached to several switches
	Children []string // child switches
	Speed    int64    // of its links, in Gb/s; 0: unknown
	Block    bool     // an NVLink domain across nodes, not a switch: it has only nodes
}

// ErrInvalidFabric is wrapped by every error of [CheckFabric].
var ErrInvalidFabric = errors.New("invalid topology")

// Bounds of a fabric.
const (
	maxSwitches = 1 << 17
	// MaxSwitchSpeed is the fastest link, in Gb/s: a petabit.
	MaxSwitchSpeed = 1_000_000
)

// CheckFabric reports every error of a fabric: an empty or duplicate name, a child that is not a
// switch, a switch with two parents or in a cycle, a block with children, a node listed twice under
// one switch or in two blocks, a switch without children or nodes. It does not check that nodes
// exist. O(size).
func CheckFabric(switches []Switch) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: %s", ErrInvalidFabric, fmt.Sprintf(format, args...)))
	}
	if len(switches) > maxSwitches {
		fault("%d switches, at most %d", len(switches), maxSwitches)
		return errors.Join(faults...)
	}
	at := make(map[string]int, len(switches))
	for i, s := range switches {
		checkWord(fault, "switch", s.Name)
		if _, duplicate := at[s.Name]; duplicate {
			fault("two switches have the name %q", s.Name)
		}
		at[s.Name] = i
	}
	blocks := map[string]string{}
	for _, s := range switches {
		checkSwitch(fault, s, blocks)
	}
	checkTree(fault, switches, at)
	return errors.Join(faults...)
}

// checkSwitch checks one switch; blocks records the block of each node.
func checkSwitch(fault func(string, ...any), s Switch, blocks map[string]string) {
	switch {
	case s.Block && len(s.Children) > 0:
		fault("block %q has children: a block has nodes alone", s.Name)
	case len(s.Nodes) == 0 && len(s.Children) == 0:
		fault("switch %q has neither nodes nor switches below it", s.Name)
	case s.Speed < 0 || s.Speed > MaxSwitchSpeed:
		fault("switch %q: %d Gb/s is out of range (0 to %d)", s.Name, s.Speed, MaxSwitchSpeed)
	case len(s.Nodes) > maxList || len(s.Children) > maxSwitches:
		fault("switch %q has too many nodes or children", s.Name)
		return
	}
	seen := make(map[string]bool, len(s.Nodes))
	for _, n := range s.Nodes {
		checkWord(fault, "node of switch "+s.Name, n)
		if seen[n] {
			fault("switch %q names node %q twice", s.Name, n)
		}
		if other, taken := blocks[n]; s.Block && taken && other != s.Name {
			fault("node %q is in the blocks %q and %q", n, other, s.Name)
		}
		if seen[n] = true; s.Block {
			blocks[n] = s.Name
		}
	}
}

// checkTree checks that children exist, have one parent, and form no cycle.
func checkTree(fault func(string, ...any), switches []Switch, at map[string]int) {
	above := make(map[string]string, len(switches))
	for _, s := range switches {
		for i, child := range s.Children {
			below, known := at[child]
			other, taken := above[child]
			switch {
			case !known:
				fault("switch %q has the child %q, which is no switch", s.Name, child)
			case slices.Contains(s.Children[:i], child):
				fault("switch %q names its child %q twice", s.Name, child)
			case switches[below].Block:
				fault("switch %q has the child %q, which is a block", s.Name, child)
			case taken:
				fault("switch %q is below %q and below %q", child, other, s.Name)
			}
			if !taken {
				above[child] = s.Name
			}
		}
	}
	known := make(map[string]bool, len(switches)) // has a path to a root
	for _, s := range switches {
		path, name := []string{}, s.Name
		for on := map[string]bool{}; name != "" && !known[name] && !on[name]; name = above[name] {
			on[name] = true
			path = append(path, name)
		}
		if from := slices.Index(path, name); from >= 0 {
			cycle := append(path[from:], name)
			slices.Reverse(cycle)
			fault("switch %q is below itself: %v", name, cycle)
		}
		for _, p := range path {
			known[p] = true
		}
	}
}
