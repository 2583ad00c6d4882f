package topologyimport

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// ReadIBNetDiscover converts the output of ibnetdiscover to a fabric; faults contain name. Switches
// with hosts are leaves. Above them, switches that share a leaf are equivalent for placement and
// become one: spine-1, spine-2, then core-1 above those, and so on. A host is the first word of its
// adapter's description up to the first dot. O(links).
func ReadIBNetDiscover(name string, text []byte) (Topology, error) {
	d := &discovery{fabricReader: &fabricReader{file: name, at: map[string]int{}, measured: true}, byGUID: map[string]*ibSwitch{}}
	line := 0
	for raw := range strings.Lines(string(text)) {
		line++
		d.line(line, strings.TrimSpace(raw))
	}
	if len(d.order) == 0 && len(d.faults) == 0 {
		d.fault(0, "contains no switch: is it the output of ibnetdiscover?")
	}
	if len(d.faults) == 0 {
		d.name()
		d.build()
	}
	return d.finish()
}

// ibSwitch is one discovered switch.
type ibSwitch struct {
	guid, said, name string
	line             int
	hosts            []string
	peers            []string // GUIDs of switches
	toHosts, up      int64    // slowest links in Gb/s; 0: none
	level            int      // 0: it has hosts; -1: not known yet
}

type discovery struct {
	*fabricReader
	byGUID map[string]*ibSwitch
	order  []*ibSwitch
	now    *ibSwitch // the switch whose ports are being listed
}

// line reads one line of the listing.
func (d *discovery) line(number int, text string) {
	switch {
	case strings.HasPrefix(text, "Switch"):
		quoted := quotes(text)
		if len(quoted) < 1 {
			d.fault(number, "a switch without its GUID in quotes")
			return
		}
		d.now = d.switchOf(quoted[0], number)
		if len(quoted) > 1 {
			d.now.said = quoted[1]
		}
	case strings.HasPrefix(text, "Ca"), strings.HasPrefix(text, "Rt"), text == "":
		d.now = nil
	case strings.HasPrefix(text, "[") && d.now != nil:
		d.port(number, text)
	}
}

func (d *discovery) switchOf(guid string, line int) *ibSwitch {
	s := d.byGUID[guid]
	if s == nil {
		s = &ibSwitch{guid: guid, line: line, level: -1}
		d.byGUID[guid] = s
		d.order = append(d.order, s)
	}
	return s
}

// port reads [N] "PEER"[M] # "description" lid L SPEED.
func (d *discovery) port(number int, text string) {
	quoted := quotes(text)
	if len(quoted) == 0 {
		d.fault(number, "a port without its peer in quotes")
		return
	}
	fields := strings.Fields(text)
	speed := ibSpeed(fields[len(fields)-1])
	if strings.HasPrefix(quoted[0], "S-") {
		peer := d.switchOf(quoted[0], number)
		for _, end := range [][2]*ibSwitch{{d.now, peer}, {peer, d.now}} { // the other end may not be listed
			if from, to := end[0], end[1]; !slices.Contains(from.peers, to.guid) {
				from.peers = append(from.peers, to.guid)
			}
			end[0].up = slower(end[0].up, speed)
		}
		return
	}
	if !strings.HasPrefix(quoted[0], "H-") || len(quoted) < 2 || strings.Contains(quoted[1], "Aggregation Node") {
		return // a router, or the switch's own adapter
	}
	words := strings.Fields(quoted[1])
	if len(words) == 0 {
		d.warn(number, "adapter %s has no description: its host is not known", quoted[0])
		return
	}
	host, _, _ := strings.Cut(words[0], ".")
	if host == "" || strings.ContainsAny(host, ",[]") {
		d.warn(number, "adapter %s has the description %q: its host is not known", quoted[0], quoted[1])
		return
	}
	d.now.toHosts = slower(d.now.toHosts, speed)
	if !slices.Contains(d.now.hosts, host) {
		d.now.hosts = append(d.now.hosts, host)
	}
}

// quotes returns the parts of a line in double quotes.
func quotes(text string) []string {
	parts := strings.Split(text, `"`)
	var all []string
	for i := 1; i+1 < len(parts); i += 2 {
		all = append(all, parts[i])
	}
	return all
}

// ibSpeed returns the speed of a width and a rate such as 4xNDR, in nominal Gb/s; 0 if it is
// neither.
func ibSpeed(word string) int64 {
	width, rate, _ := strings.Cut(word, "x")
	lanes, err := strconv.ParseInt(width, 10, 8)
	per := map[string]float64{"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}[rate]
	if err != nil || lanes < 1 {
		return 0
	}
	return int64(float64(lanes) * per)
}

func slower(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// name gives each switch its own name, or its GUID if that is not a valid name or not unique.
func (d *discovery) name() {
	count := map[string]int{}
	for _, s := range d.order {
		s.name = ownName(s.said)
		count[s.name]++
	}
	for _, s := range d.order {
		if s.name == "" || count[s.name] > 1 {
			s.name = s.guid
		}
	}
	slices.SortFunc(d.order, func(a, b *ibSwitch) int { return strings.Compare(a.name, b.name) })
}

// ownName reads "MF0;leaf01:MQM9700/U1" and "leaf01"; "" if it is not a single word.
func ownName(said string) string {
	if _, rest, is := strings.Cut(said, ";"); is {
		said, _, _ = strings.Cut(rest, ":")
	}
	if said == "" || strings.ContainsAny(said, " ,[]:;\"") {
		return ""
	}
	return said
}

// build makes the tree.
func (d *discovery) build() {
	left := d.levelled()
	for _, s := range left {
		d.warn(s.line, "switch %q leads to no host and is left out", s.name)
	}
	groups := map[string]*placedSwitch{} // by GUID: the switch of the tree
	top := 0
	for _, s := range d.order {
		top = max(top, s.level)
		if s.level == 0 {
			groups[s.guid] = &placedSwitch{cluster.Switch{Name: s.name, Nodes: s.hosts, Speed: s.toHosts}, s.line}
		}
	}
	var all []*placedSwitch
	for _, s := range d.order {
		if s.level == 0 {
			all = append(all, groups[s.guid])
		}
	}
	for level := 1; level <= top; level++ {
		all = append(all, d.merge(level, groups)...)
	}
	all = append(all, d.joinRoots(all, groups)...)
	for _, s := range all {
		d.add(s.Switch, s.line)
	}
}

// levelled sets each switch's distance to the nearest switch with hosts, and returns the switches
// that have none.
func (d *discovery) levelled() []*ibSwitch {
	var at, left []*ibSwitch
	for _, s := range d.order {
		if len(s.hosts) > 0 {
			s.level = 0
			at = append(at, s)
		}
	}
	for len(at) > 0 {
		var next []*ibSwitch
		for _, s := range at {
			for _, guid := range s.peers {
				if p := d.byGUID[guid]; p.level < 0 {
					p.level = s.level + 1
					next = append(next, p)
				}
			}
		}
		at = next
	}
	for _, s := range d.order {
		if s.level < 0 {
			left = append(left, s)
		}
	}
	return left
}

// merge joins the switches of a level that share one below, transitively, and makes those below
// their children.
func (d *discovery) merge(level int, groups map[string]*placedSwitch) []*placedSwitch {
	under := map[*placedSwitch]*placedSwitch{} // parents by child
	var made []*placedSwitch
	for _, s := range d.order {
		if s.level != level {
			continue
		}
		into := &placedSwitch{cluster.Switch{Speed: s.up}, s.line}
		made = append(made, into)
		groups[s.guid] = into
		for _, guid := range s.peers {
			p := d.byGUID[guid]
			if p.level != level-1 {
				continue
			}
			below := groups[p.guid]
			other := under[below]
			if other != nil && other != into { // a common child: they are one
				for child, parent := range under {
					if parent == other {
						under[child] = into
					}
				}
				for guid, g := range groups {
					if g == other {
						groups[guid] = into
					}
				}
				into.Speed = slower(into.Speed, other.Speed)
				made = slices.DeleteFunc(made, func(x *placedSwitch) bool { return x == other })
			}
			under[below] = into
		}
	}
	for i, g := range made {
		g.Name = d.fresh(levelName(level), i+1)
		for child, parent := range under {
			if parent == g {
				g.Children = append(g.Children, child.Name)
			}
		}
		slices.Sort(g.Children)
	}
	return made
}

// levelName returns the name of switches at a level above the leaves.
func levelName(level int) string {
	switch level {
	case 1:
		return "spine"
	case 2:
		return "core"
	}
	return "level" + strconv.Itoa(level)
}

// fresh returns a name that no switch has.
func (d *discovery) fresh(stem string, n int) string {
	name := fmt.Sprintf("%s-%d", stem, n)
	for slices.ContainsFunc(d.order, func(s *ibSwitch) bool { return s.name == name }) {
		name += "x"
	}
	return name
}

// joinRoots adds a switch above roots that are cabled to each other, as in a fabric without spines.
func (d *discovery) joinRoots(all []*placedSwitch, groups map[string]*placedSwitch) []*placedSwitch {
	parent := map[string]string{}
	for _, s := range all {
		for _, c := range s.Children {
			parent[c] = s.Name
		}
	}
	root := func(name string) string {
		for parent[name] != "" {
			name = parent[name]
		}
		return name
	}
	var made []*placedSwitch
	for _, s := range d.order {
		for _, guid := range s.peers {
			if groups[s.guid] == nil || groups[guid] == nil {
				continue
			}
			a, b := root(groups[s.guid].Name), root(groups[guid].Name)
			if a == b {
				continue
			}
			at := slices.IndexFunc(made, func(m *placedSwitch) bool { return m.Name == a || m.Name == b })
			if at < 0 {
				at = len(made)
				made = append(made, &placedSwitch{cluster.Switch{Name: d.fresh("fabric", at+1)}, s.line})
			}
			for _, name := range []string{a, b} {
				if name != made[at].Name {
					made[at].Children = append(made[at].Children, name)
					parent[name] = made[at].Name
				}
			}
		}
	}
	return made
}
