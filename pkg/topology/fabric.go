package topology

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// Fabric is the tree of switches above the nodes, as domains in levels. Level 0 is the leaf: the
// set of switches that the same nodes share. Each further level is the switches above those of the
// level below. Domains nest: nodes that share one share all above it. A Fabric never changes. A nil
// *Fabric is one leaf with every node.
type Fabric struct {
	levels []level
	hosts  map[string]int32 // the leaf of each node
	blocks map[string]string
}

// level is the domains of one level.
type level struct {
	names     []string
	above     []int32 // the domain of the next level that each is in
	bandwidth int64
}

// NewFabric builds the tree of a file's switches, in any order. Where the file has blocks and no
// switch, a block is a leaf. Its error is that of [cluster.CheckFabric]. Without switches it
// returns nil. O(nodes × rails + switches × levels).
func NewFabric(switches []cluster.Switch) (*Fabric, error) {
	if len(switches) == 0 {
		return nil, nil
	}
	if err := cluster.CheckFabric(switches); err != nil {
		return nil, err
	}
	b := newBuilder(switches)
	f := &Fabric{hosts: map[string]int32{}, blocks: b.blocks}
	if len(b.switches) == 0 {
		return nil, nil
	}
	keys, of := b.leaves()
	for {
		at := level{bandwidth: b.bandwidth(keys)}
		for _, k := range keys {
			at.names = append(at.names, b.name(k))
		}
		next, above := b.rise(keys)
		if len(f.levels) == 0 {
			f.hosts = of
		}
		if next == nil {
			f.levels = append(f.levels, at)
			break
		}
		at.above = above
		f.levels = append(f.levels, at)
		keys = next
	}
	f.rank()
	return f, nil
}

// rank gives each level without a speed that of the level below; when no level has one, numbers
// that fall with the distance.
func (f *Fabric) rank() {
	known := slices.ContainsFunc(f.levels, func(l level) bool { return l.bandwidth > 0 })
	for i := range f.levels {
		switch l := &f.levels[i]; {
		case !known:
			l.bandwidth = int64(len(f.levels) - i)
		case l.bandwidth == 0 && i > 0:
			l.bandwidth = f.levels[i-1].bandwidth
		}
	}
	if known && f.levels[0].bandwidth == 0 { // a leaf is at least as fast as the levels above it
		for _, l := range f.levels {
			f.levels[0].bandwidth = max(f.levels[0].bandwidth, l.bandwidth)
		}
	}
}

// Levels returns the number of levels; at least 1.
func (f *Fabric) Levels() int {
	if f == nil {
		return 1
	}
	return len(f.levels)
}

// Domain returns the number of a node's domain of a level, from 0 on in the order of names; false
// when the fabric does not name the node, or has no such level. O(levels).
func (f *Fabric) Domain(at int, host string) (int32, bool) {
	if f == nil {
		return 0, at == 0
	}
	d, known := f.hosts[host]
	if !known || at < 0 || at >= len(f.levels) {
		return 0, false
	}
	for i := range at {
		d = f.levels[i].above[d]
	}
	return d, true
}

// Domains returns the number of domains of a level.
func (f *Fabric) Domains(at int) int {
	switch {
	case f == nil && at == 0:
		return 1
	case f == nil || at < 0 || at >= len(f.levels):
		return 0
	}
	return len(f.levels[at].names)
}

// Name returns the name of a domain: of its switch, or of several as a host list; "" when the
// domain does not exist.
func (f *Fabric) Name(at int, domain int32) string {
	if domain < 0 || int(domain) >= f.Domains(at) {
		return ""
	}
	if f == nil {
		return "all"
	}
	return f.levels[at].names[domain]
}

// Bandwidth returns the slowest known link of a level in Gb/s. Where the file has no speeds, it is
// a rank: the number of levels from this one up. It falls with the distance only where the file
// says so.
func (f *Fabric) Bandwidth(at int) int64 {
	switch {
	case f == nil:
		return 1
	case at < 0 || at >= len(f.levels):
		return 0
	}
	return f.levels[at].bandwidth
}

// Hosts returns the nodes that the fabric names, sorted. O(nodes log nodes).
func (f *Fabric) Hosts() []string {
	if f == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(f.hosts))
}

// Block returns the NVLink domain of the file for a node; "" when there is no block.
func (f *Fabric) Block(host string) string {
	if f == nil {
		return ""
	}
	return f.blocks[host]
}

// Linked returns a node with its effective NVLink domains: where the node reports no domain beyond
// itself and the file has it in a block, the block. It returns the node itself where nothing
// changes, else a copy. O(GPUs).
func (f *Fabric) Linked(n *cluster.Node) *cluster.Node {
	block := f.Block(n.Name)
	if block == "" || !slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return Local(n.Name, g.Domain) }) {
		return n
	}
	c := *n
	c.GPUs = slices.Clone(n.GPUs)
	for i := range c.GPUs {
		if g := &c.GPUs[i]; Local(n.Name, g.Domain) {
			g.Domain = "block " + block
		}
	}
	return &c
}

// Local reports whether an NVLink domain, as a node reports it, is the node's alone.
func Local(node, domain string) bool {
	return domain == "" || domain == node || strings.HasPrefix(domain, node+"/")
}

// builder holds the lookup tables of [NewFabric].
type builder struct {
	switches []cluster.Switch // by name
	parent   []int32          // by switch; itself at the top
	blocks   map[string]string
}

func newBuilder(all []cluster.Switch) *builder {
	b := &builder{blocks: map[string]string{}}
	for _, s := range all {
		if !s.Block {
			b.switches = append(b.switches, s)
			continue
		}
		for _, n := range s.Nodes {
			b.blocks[n] = s.Name
		}
	}
	if len(b.switches) == 0 {
		b.switches = slices.Clone(all)
	}
	slices.SortFunc(b.switches, func(x, y cluster.Switch) int { return cmp.Compare(x.Name, y.Name) })
	at := make(map[string]int32, len(b.switches))
	for i, s := range b.switches {
		at[s.Name] = int32(i)
		b.parent = append(b.parent, int32(i))
	}
	for i, s := range b.switches {
		for _, child := range s.Children {
			b.parent[at[child]] = int32(i)
		}
	}
	return b
}

// key identifies a domain: its switches, ascending.
type key []int32

func (k key) text() string {
	var out []byte
	for _, s := range k {
		out = strconv.AppendInt(append(out, '.'), int64(s), 36)
	}
	return string(out)
}

// leaves groups nodes by the set of switches they are attached to.
func (b *builder) leaves() ([]key, map[string]int32) {
	sets := map[string]key{}
	for i, s := range b.switches {
		for _, n := range s.Nodes {
			sets[n] = append(sets[n], int32(i)) // ascending, since i is
		}
	}
	hosts := slices.Sorted(maps.Keys(sets))
	each := make([]key, len(hosts))
	for i, h := range hosts {
		each[i] = sets[h]
	}
	keys, places := number(each)
	of := make(map[string]int32, len(hosts))
	for i, h := range hosts {
		of[h] = places[i]
	}
	return keys, of
}

// rise returns the level above; nil when every switch is at the top.
func (b *builder) rise(keys []key) (next []key, above []int32) {
	moved := false
	each := make([]key, len(keys))
	for i, k := range keys {
		up := make(key, len(k))
		for j, s := range k {
			up[j] = b.parent[s]
			moved = moved || up[j] != s
		}
		slices.Sort(up)
		each[i] = slices.Compact(up)
	}
	if !moved {
		return nil, nil
	}
	return number(each)
}

// number makes one domain of equal keys, in ascending order, and returns the domain of each.
func number(each []key) (keys []key, places []int32) {
	seen := map[string]bool{}
	for _, k := range each {
		if text := k.text(); !seen[text] {
			seen[text] = true
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(x, y key) int { return slices.Compare(x, y) })
	at := make(map[string]int32, len(keys))
	for i, k := range keys {
		at[k.text()] = int32(i)
	}
	for _, k := range each {
		places = append(places, at[k.text()])
	}
	return keys, places
}

// name folds the names of a domain's switches.
func (b *builder) name(k key) string {
	if len(k) == 1 {
		return b.switches[k[0]].Name
	}
	names := make([]string, len(k))
	for i, s := range k {
		names[i] = b.switches[s].Name
	}
	return hostlist.Compress(names)
}

// bandwidth returns the slowest link with a speed.
func (b *builder) bandwidth(keys []key) int64 {
	var least int64
	for _, k := range keys {
		for _, s := range k {
			if v := b.switches[s].Speed; v > 0 && (least == 0 || v < least) {
				least = v
			}
		}
	}
	return least
}
