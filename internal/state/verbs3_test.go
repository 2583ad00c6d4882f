package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// places puts a GPU of a node's that many into an NVLink domain: gpumem=40G, link=rack7
// for all, links=2 for so many domains of the node's own.
func places(w words, g *cluster.GPU, gpus int) {
	if m := w.size("gpumem"); m > 0 {
		g.Memory = m
	}
	g.Domain = w.keys["link"]
	if n := int(w.number("links", 0)); n > 0 {
		g.Domain = fmt.Sprintf("%s/%d", w.plain[0], int(g.Index)*n/gpus)
	}
}

// nearness reads connect=leaf switches=2 wait=10m|always|policy gpumem=80G licences=a:1 reservation=r others=x,y.
func nearness(w words, spec *cluster.JobSpec) {
	r := &spec.Request
	r.GPUMemory, r.Switches, r.SwitchWait = w.size("gpumem"), int32(w.number("switches", 0)), cluster.SwitchAlways
	if word := w.keys["connect"]; word != "" {
		var known bool
		if r.Connect, known = cluster.ParseConnect(word); !known {
			panic(word)
		}
	}
	switch w.keys["wait"] {
	case "", "always":
	case "policy":
		r.SwitchWait = cluster.SwitchDefault
	default:
		r.SwitchWait = w.duration("wait")
	}
	r.Licences = licences(w.list("licences"))
	spec.Reservation, spec.Others = w.keys["reservation"], w.list("others")
}

func licences(list []string) []cluster.Licence {
	var all []cluster.Licence
	for _, word := range list {
		name, count, _ := strings.Cut(word, ":")
		all = append(all, cluster.Licence{Name: name, Count: int32(id(count))})
	}
	return all
}

// schedulingOf reads licences=a:2 and reservation=name:nodes:users:accounts:from:to,
// with nodes, users and accounts joined by +.
func schedulingOf(w words, s *cluster.Scheduling) {
	s.Licences = licences(w.list("licences"))
	for _, word := range w.list("reservation") {
		f := strings.Split(word, ":")
		var ends [2]time.Duration
		for i := range ends {
			ends[i], _ = time.ParseDuration(f[4+i])
		}
		list := func(text string) []string {
			return slices.DeleteFunc(strings.Split(text, "+"), func(s string) bool { return s == "" })
		}
		s.Reservations = append(s.Reservations, cluster.Reservation{
			Name: f[0], Nodes: list(f[1]), Users: list(f[2]), Accounts: list(f[3]),
			Start: cluster.Instant(ends[0]) + 1, End: cluster.Instant(ends[1]) + 1,
		})
	}
}

// topology sets the fabric: words leaf=n[1-2] top=+leaf =block=n1 as name=nodes, with
// children after a +; none takes it away. "show" prints it.
func (x *script) topology(w words) string {
	v := x.s.View()
	if w.has("show") {
		switches, version, since, by := v.Topology()
		lines := []string{fmt.Sprintf("version %d by %s since %s", version, by, since.Sub(1))}
		for _, s := range switches {
			lines = append(lines, fmt.Sprintf("%s nodes %v children %v block %v", s.Name, s.Nodes, s.Children, s.Block))
		}
		return strings.Join(lines, "\n")
	}
	c := &command.SetTopology{Request: request16(w), Actor: actor(w.plain[0]), Expect: uint64(w.number("expect", 0))}
	for _, word := range w.plain[1:] {
		f := strings.Split(word, ":")
		s := cluster.Switch{Name: strings.TrimPrefix(f[0], "@"), Block: f[0][0] == '@'}
		for _, below := range f[1:] {
			if child, is := strings.CutPrefix(below, "+"); is {
				s.Children = append(s.Children, child)
			} else {
				s.Nodes = append(s.Nodes, below)
			}
		}
		c.Switches = append(c.Switches, s)
	}
	return x.apply(c)
}
