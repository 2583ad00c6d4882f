package state

import (
	"errors"
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// fabric is the topology in force. It is replaced, never changed, so that views may
// share it.
type fabric struct {
	version  uint64 // 0: never set
	since    cluster.Instant
	by       string
	said     []cluster.Switch // as submitted: nodes may be host list expressions
	switches []cluster.Switch // the same with expanded names
	tree     *topology.Fabric
}

func fabricFields(c *codec.Coder, x *fabric) {
	codec.Uint(c, &x.version)
	codec.Int(c, &x.since)
	codec.String(c, &x.by)
	command.SwitchesFields(c, &x.said)
}

// maxTopologyNames bounds the names that a topology may expand to: every node of a very large cluster on
// sixteen rails.
const maxTopologyNames = 2_000_000

// GrowTopology builds the tree of a fabric whose nodes may be host list expressions, or returns
// every fault for which [State.Apply] would refuse it. O(size).
func GrowTopology(switches []cluster.Switch) (*topology.Fabric, error) {
	_, tree, err := grow(switches)
	return tree, err
}

// grow expands host lists and builds the tree.
func grow(said []cluster.Switch) ([]cluster.Switch, *topology.Fabric, error) {
	names := 0
	all := make([]cluster.Switch, len(said))
	for i, s := range said {
		all[i] = s
		all[i].Nodes = nil
		for _, expr := range s.Nodes {
			list, err := hostlist.Expand(expr)
			if err != nil {
				return nil, nil, fmt.Errorf("%w: switch %q: %w", cluster.ErrInvalidFabric, s.Name, err)
			}
			if names += len(list); names > maxTopologyNames {
				return nil, nil, fmt.Errorf("%w: more than %d nodes in all", cluster.ErrInvalidFabric, maxTopologyNames)
			}
			all[i].Nodes = append(all[i].Nodes, list...)
		}
	}
	tree, err := topology.NewFabric(all)
	return all, tree, err
}

func (s *State) setTopology(c *command.SetTopology) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	now := s.fabric
	switch {
	case !c.Actor.Has(command.RoleAdmin):
		return s.remember(c.Request, command.Refusef(command.Denied, "%s may not change the topology: requires role admin", c.Actor.Identity.User))
	case c.Expect != 0 && c.Expect != now.version:
		return s.remember(c.Request, command.WithHint(command.Refusef(command.Conflict, "the topology has version %d, not %d: it was changed meanwhile", now.version, c.Expect), "check gctl topology show, then import again"))
	}
	switches, tree, err := grow(c.Switches)
	if err != nil {
		return command.Refuse(command.InvalidArgument, "topology: "+ShortFaults(err), "gctl topology import --dry-run shows the lines of the file")
	}
	s.putFabric(&fabric{version: now.version + 1, since: s.now, by: c.Actor.Identity.User, said: c.Switches, switches: switches, tree: tree})
	s.effects.Changed = append(s.effects.Changed, Change{Kind: PolicyChanged})
	return s.remember(c.Request, &command.Done{Version: s.fabric.version})
}

// ShortFaults returns the first faults of a fabric in one line: a wrong file may have one in every
// line.
func ShortFaults(err error) string {
	var all interface{ Unwrap() []error }
	more := ""
	if errors.As(err, &all) && len(all.Unwrap()) > maxFaults {
		list := all.Unwrap()
		err, more = errors.Join(list[:maxFaults]...), fmt.Sprintf("; and %d more", len(list)-maxFaults)
	}
	return strings.ReplaceAll(command.OneLine(err), cluster.ErrInvalidFabric.Error()+": ", "") + more
}

const maxFaults = 20

// putFabric puts a topology in force.
func (s *State) putFabric(f *fabric) {
	s.fabric = f
	s.fabricHash = s.hashFabric()
	s.partitions = nil
}

// Topology returns the switches in force with the names of their nodes, the version (0 for none),
// the time of the change, and the user who made it.
func (v *View) Topology() (switches []cluster.Switch, version uint64, since cluster.Instant, by string) {
	return v.fabric.switches, v.fabric.version, v.fabric.since, v.fabric.by
}

// Fabric returns the tree of the topology in force; nil for none.
func (v *View) Fabric() *topology.Fabric { return v.fabric.tree }

// readTopology restores the topology of a snapshot.
func (x *restoring) readTopology(c *codec.Coder) {
	f := new(fabric)
	codec.Record(c, f, fabricFields)
	if c.Failed() {
		return
	}
	var err error
	if f.switches, f.tree, err = grow(f.said); err != nil || f.version == 0 {
		c.Fail("the topology is not well formed: %v", err)
		return
	}
	x.putFabric(f)
}
