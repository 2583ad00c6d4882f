package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// places assigns the GPUs of a node to NVLink domains: gpumem=40G, link=rack7 for all, links=2 for
// that many domains of the node's own.
func places(w scriptLine, g *cluster.GPU, gpus int) {
	if m := w.size("gpumem"); m > 0 {
		g.Memory = m
	}
	g.Domain = w.keys["link"]
	if n := int(w.number("links", 0)); n > 0 {
		g.Domain = fmt.Sprintf("%s/%d", w.plain[0], int(g.Index)*n/gpus)
	}
}

// nearness reads connect=leaf switches=2 wait=10m|always|policy gpumem=80G licences=a:1 gres=nvme:2 reservation=r
// others=x,y.
func nearness(w scriptLine, spec *cluster.JobSpec) {
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
	r.Licences, r.Gres = licencesOf(w.list("licences")), gresOf(w.list("gres"))
	r.Share = cluster.GPUShare{Jobs: int32(w.number("share", 0)), MPS: w.has("mps")}
	r.Regions, r.MaxPrice = w.list("regions"), w.number("price", 0)
	spec.Reservation, spec.OtherPartitions = w.keys["reservation"], w.list("others")
	spec.Secrets = w.list("secrets")
}

// gresOf reads generic resources: name:2 or name:type:2.
func gresOf(list []string) []cluster.Gres {
	var all []cluster.Gres
	for _, word := range list {
		parts := strings.Split(word, ":")
		g := cluster.Gres{Name: parts[0], Count: int64(id(parts[len(parts)-1]))}
		if len(parts) > 2 {
			g.Type = parts[1]
		}
		all = append(all, g)
	}
	return all
}

func licencesOf(list []string) []cluster.Licence {
	var all []cluster.Licence
	for _, word := range list {
		name, count, _ := strings.Cut(word, ":")
		all = append(all, cluster.Licence{Name: name, Count: int32(id(count))})
	}
	return all
}

// schedulingOf reads licences=a:2 and reservation=name:nodes:users:accounts:from:to,
// with nodes, users and accounts joined by +.
func schedulingOf(w scriptLine, s *cluster.Scheduling) {
	s.Licences = licencesOf(w.list("licences"))
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

// topology sets the fabric: words leaf=n[1-2] top=+leaf =block=n1 as name=nodes, with children
// after a +; none removes it. "show" prints it.
func (x *script) topology(w scriptLine) string {
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

// near sometimes adds a locality requirement to a request.
func (x *chaos) near(spec *cluster.JobSpec) {
	r := &spec.Request
	if x.pick(5) == 0 {
		r.Connect, r.Switches = cluster.Connect(x.pick(5)), int32(x.pick(3))
		r.SwitchWait = []time.Duration{cluster.SwitchAlways, cluster.SwitchDefault, 0, time.Hour}[x.pick(4)]
	}
	if x.pick(9) == 0 {
		spec.Partition, spec.OtherPartitions = "main", []string{"other", "main", "none"}[:x.pick(3)]
	}
}

// topology sets a fabric that is usually a tree.
func (x *chaos) topology() command.Command {
	c := &command.SetTopology{Request: x.request(), Actor: x.actor(), Expect: uint64(x.pick(3))}
	if x.pick(4) > 0 {
		c.Switches = []cluster.Switch{
			{Name: "l1", Nodes: []string{"n[1-2]"}}, {Name: "l2", Nodes: []string{[]string{"n[3-4]", "n3", "n["}[x.pick(7)/3]}},
			{Name: "rack", Nodes: []string{"n1", "n3"}, Block: true}, {Name: "top", Children: []string{"l1", "l2"}},
		}[:1+x.pick(4)]
	}
	return c
}

func TestTopologySurvivesASnapshot(t *testing.T) {
	s := New()
	s.Apply(1, 1, &command.Init{ClusterID: "test"})
	switches := []cluster.Switch{
		{Name: "l1", Nodes: []string{"n[1-2]"}, Speed: 400}, {Name: "l2", Nodes: []string{"n3"}},
		{Name: "top", Children: []string{"l1", "l2"}}, {Name: "rack", Nodes: []string{"n[1,3]"}, Block: true},
	}
	empty := s.Digest()
	if refusal, bad := s.Apply(2, 5, &command.SetTopology{Actor: actor("root"), Switches: switches}).(*command.Refusal); bad {
		t.Fatal(refusal)
	}
	if s.Digest() == empty {
		t.Error("the digest does not cover the topology")
	}
	again := restore(t, encode(t, s), s.Digest())
	_, version, since, by := again.View().Topology()
	if version != 1 || since != 5 || by != "root" || again.View().Fabric().Block("n3") != "rack" || len(again.View().Snapshot().Switches) != 4 {
		t.Errorf("version %d since %d by %s, %v", version, since, by, again.View().Snapshot().Switches)
	}
	if name := again.View().Fabric().Name(0, 1); name != "l2" {
		t.Errorf("the second leaf is %q", name)
	}
}

// BenchmarkNearness submits jobs that request a leaf and an NVLink domain, each unlike any before:
// 16,000 nodes of 4 GPUs, 8 rails, 18 nodes to a domain.
func BenchmarkNearness(b *testing.B) {
	s := New()
	s.Apply(1, 1, &command.Init{ClusterID: "bench"})
	var switches []cluster.Switch
	for leaf := range 500 {
		switches = append(switches, cluster.Switch{Name: fmt.Sprint("leaf", leaf), Nodes: []string{fmt.Sprintf("n[%d-%d]", leaf/8*256, leaf/8*256+255)}})
	}
	s.Apply(2, 1, &command.SetTopology{Actor: actor("root"), Switches: switches})
	for i := range 16_000 {
		n := cluster.Node{Name: fmt.Sprint("n", i), BootID: "b", CPUs: 64, Memory: cluster.TiB}
		for g := range int32(4) {
			n.GPUs = append(n.GPUs, cluster.GPU{Index: g, Type: "gb200", Memory: 186 * cluster.GiB, Domain: fmt.Sprint("rack", i/18)})
		}
		s.Apply(uint64(i)+3, 1, &command.RegisterNode{Node: n})
	}
	index := uint64(20_000)
	for b.Loop() {
		index++
		c := &command.SubmitJobs{Actor: actor("ada"), Jobs: []command.Submission{{Spec: cluster.JobSpec{
			Name:    fmt.Sprint("job", index),
			Request: cluster.Request{Nodes: 18, GPUsPerNode: 4, Connect: cluster.Connect(1 + index%2*2), SwitchWait: cluster.SwitchAlways},
		}}}}
		if refusal, bad := s.Apply(index, 1, c).(*command.Refusal); bad {
			b.Fatal(refusal)
		}
	}
}

// audited prints the entries that the audit journal got since the last call.
func (x *script) audited() string {
	var lines []string
	for _, e := range x.s.effects.Audit {
		who := e.User
		if who == "" {
			who = "-"
		}
		lines = append(lines, fmt.Sprintf("%s %s (%d): %s", who, e.Kind, e.Code, e.Text))
	}
	x.s.effects.Audit = nil
	return strings.Join(lines, "\n")
}
