package topology

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// switches reads "name nodes|children list speed"; children begin with +, blocks with =.
func switches(t *testing.T, lines ...string) []cluster.Switch {
	t.Helper()
	var all []cluster.Switch
	for _, line := range lines {
		var s cluster.Switch
		for _, f := range strings.Fields(line) {
			switch list, err := hostlist.Expand(strings.TrimLeft(f, "+=")); {
			case err != nil:
				t.Fatal(err)
			case strings.HasPrefix(f, "@"):
				if _, err := fmt.Sscanf(f, "@%d", &s.Speed); err != nil {
					t.Fatal(err)
				}
			case s.Name == "":
				s.Name, s.Block = list[0], f[0] == '='
			case f[0] == '+':
				s.Children = append(s.Children, list...)
			default:
				s.Nodes = append(s.Nodes, list...)
			}
		}
		all = append(all, s)
	}
	return all
}

// picture writes each host with its domains from the leaf up.
func picture(f *Fabric) string {
	var out strings.Builder
	for _, h := range f.Hosts() {
		out.WriteString(h)
		for l := range f.Levels() {
			d, _ := f.Domain(l, h)
			out.WriteString(" " + f.Name(l, d))
		}
		out.WriteString("\n")
	}
	return out.String()
}

func TestFabric(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"a tree", []string{"s0 a[1-2]", "s1 b", "top +s[0-1]"}, "a1 s0 top\na2 s0 top\nb s1 top\n"},
		{"rails", []string{"l[1] n[1-2]", "l2 n[1-2]", "l3 n3", "l4 n3", "sp1 +l1,l3", "sp2 +l2,l4"},
			"n1 l[1-2] sp[1-2]\nn2 l[1-2] sp[1-2]\nn3 l[3-4] sp[1-2]\n"},
		{"a rail that one node lacks", []string{"l1 n[1-3]", "l2 n[1-2]"}, "n1 l[1-2]\nn2 l[1-2]\nn3 l1\n"},
		{"unequal depth", []string{"l1 a", "l2 b", "m +l2", "top +m,l1"}, "a l1 top top\nb l2 m top\n"},
		{"two trees", []string{"l1 a", "l2 b", "x +l1", "y +l2"}, "a l1 x\nb l2 y\n"},
		{"blocks alone are leaves", []string{"=b1 n[1-2]", "=b2 n3"}, "n1 b1\nn2 b1\nn3 b2\n"},
		{"blocks do not count with switches", []string{"=b1 n[1-2]", "s n[1-3]"}, "n1 s\nn2 s\nn3 s\n"},
	} {
		all := switches(t, c.lines...)
		f, err := NewFabric(all)
		if err != nil || picture(f) != c.want {
			t.Errorf("%s: %v\n%swant\n%s", c.name, err, picture(f), c.want)
		}
		slices.Reverse(all)
		if g, _ := NewFabric(all); picture(g) != c.want {
			t.Errorf("%s: in another order\n%s", c.name, picture(g))
		}
	}
}

func TestFabricFaults(t *testing.T) {
	for want, lines := range map[string][]string{
		"is below itself: [a b c a]":            {"a +b", "b +c", "c +a"},
		"is below itself: [a a]":                {"a +a"},
		"two switches have the name":            {"a n1", "a n2"},
		"child \"b\", which is no switch":       {"a +b"},
		"is below \"a\" and below \"b\"":        {"a +c", "b +c", "c n"},
		"neither nodes nor switches":            {"a"},
		"names node \"n\" twice":                {"a n n"},
		"in the blocks \"a\" and \"b\"":         {"=a n", "=b n"},
		"has children: a block has nodes alone": {"=a +b", "b n"},
		"which is a block":                      {"a +b", "=b n"},
		"out of range":                          {"a n @2000000"},
		"names its child \"b\" twice":           {"a +b +b", "b n"},
	} {
		_, err := NewFabric(switches(t, lines...))
		if !errors.Is(err, cluster.ErrInvalidFabric) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", lines, err, want)
		}
	}
}

func TestNoFabricIsOneLeaf(t *testing.T) {
	f, err := NewFabric(nil)
	d, known := f.Domain(0, "anything")
	if err != nil || f != nil || f.Levels() != 1 || !known || d != 0 || f.Name(0, 0) != "all" || f.Bandwidth(0) == 0 || f.Domains(0) != 1 {
		t.Errorf("%v %v %d %v", f, err, d, known)
	}
	if _, known := f.Domain(1, "anything"); known {
		t.Error("there is a second level")
	}
}

func TestBandwidth(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  []int64
	}{
		{[]string{"l1 a @400", "l2 b @200", "top +l[1-2] @800"}, []int64{200, 800}},
		{[]string{"l1 a", "l2 b", "top +l[1-2]"}, []int64{2, 1}},
		{[]string{"l1 a @400", "l2 b", "top +l[1-2]"}, []int64{400, 400}},
		{[]string{"l1 a", "l2 b", "top +l[1-2] @100"}, []int64{100, 100}},
	} {
		f, err := NewFabric(switches(t, c.lines...))
		if err != nil {
			t.Fatal(err)
		}
		for l, want := range c.want {
			if got := f.Bandwidth(l); got != want {
				t.Errorf("%v: level %d has %d, want %d", c.lines, l, got, want)
			}
		}
	}
}

func TestLinked(t *testing.T) {
	f, err := NewFabric(switches(t, "=rack1 n[1-2]"))
	if err != nil {
		t.Fatal(err)
	}
	n := &cluster.Node{Name: "n1", GPUs: []cluster.GPU{{Domain: "n1/0"}, {Domain: "n1"}, {}, {Domain: "uuid.7"}, {Domain: "n11"}}}
	got := f.Linked(n)
	for i, want := range []string{"block rack1", "block rack1", "block rack1", "uuid.7", "n11"} {
		if got.GPUs[i].Domain != want {
			t.Errorf("GPU %d is in %q, want %q", i, got.GPUs[i].Domain, want)
		}
	}
	if n.GPUs[0].Domain != "n1/0" {
		t.Error("the node was changed")
	}
	if other := (&cluster.Node{Name: "x", GPUs: n.GPUs}); f.Linked(other) != other || (*Fabric)(nil).Linked(n) != n {
		t.Error("a node that nothing concerns was copied")
	}
}

// FuzzFabric checks that domains nest, on any set of switches that is accepted.
func FuzzFabric(f *testing.F) {
	f.Add(uint64(1), uint8(5))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		r := rand.New(rand.NewPCG(seed, 1))
		var all []cluster.Switch
		for i := range int(n%24) + 1 {
			s := cluster.Switch{Name: fmt.Sprint("s", i), Speed: r.Int64N(3) * 100, Block: r.IntN(9) == 0}
			for range r.IntN(4) {
				s.Nodes = append(s.Nodes, fmt.Sprint("n", r.IntN(30)))
			}
			for range r.IntN(3) {
				s.Children = append(s.Children, fmt.Sprint("s", r.IntN(i+1)))
			}
			all = append(all, s)
		}
		fabric, err := NewFabric(all)
		if err != nil {
			if !errors.Is(err, cluster.ErrInvalidFabric) {
				t.Fatal(err)
			}
			return
		}
		for _, a := range fabric.Hosts() {
			for _, b := range fabric.Hosts() {
				shared := false
				for l := range fabric.Levels() {
					x, _ := fabric.Domain(l, a)
					y, _ := fabric.Domain(l, b)
					if shared && x != y {
						t.Fatalf("%s and %s part at level %d", a, b, l)
					}
					shared = x == y
				}
			}
		}
	})
}

func BenchmarkFabric(b *testing.B) {
	var all []cluster.Switch
	spine := cluster.Switch{Name: "spine"}
	for l := range 500 { // 16,000 nodes, 8 rails
		s := cluster.Switch{Name: fmt.Sprint("leaf", l), Speed: 400}
		for n := range 256 {
			s.Nodes = append(s.Nodes, fmt.Sprint("gpu", l/8*256+n))
		}
		all, spine.Children = append(all, s), append(spine.Children, s.Name)
	}
	all = append(all, spine)
	for b.Loop() {
		if _, err := NewFabric(all); err != nil {
			b.Fatal(err)
		}
	}
}
