package topology

import (
	"fmt"
	"strings"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

func TestDisagreements(t *testing.T) {
	f, err := NewFabric(switches(t, "l1 n[1-2]", "l2 n[3-5]", "top +l[1-2]", "=b1 n[1-3]", "=b2 n4"))
	if err != nil {
		t.Fatal(err)
	}
	node := func(name string, domains ...string) *cluster.Node {
		n := &cluster.Node{Name: name}
		for _, d := range domains {
			n.GPUs = append(n.GPUs, cluster.GPU{Domain: d})
		}
		return n
	}
	nodes := []*cluster.Node{
		node("n1", "x.1", "x.1"), node("n2", "x.1"), node("n3", "x.1", "y.1"), node("n4", "x.1"), node("n9", "n9/0"), node("n7"),
	}
	var out strings.Builder
	for _, d := range f.Disagreements(nodes) {
		fmt.Fprintln(&out, d.Kind, d.Nodes, d.Text)
	}
	const want = `unplaced [n7 n9] no switch of the file has these nodes: jobs that request a leaf or few switches cannot use them
unknown [n5] the file names these nodes, and none of them has registered
split [n1 n2 n3 n4] NVLink domain "x.1" is under several leaves: l1, l2
block [n1 n2 n3 n4] NVLink domain "x.1" is in several blocks of the file: b1, b2
block [n1 n2 n3] the nodes of block "b1" report several NVLink domains: x.1, y.1
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if all := (*Fabric)(nil).Disagreements(nodes); all != nil {
		t.Errorf("no fabric disagrees: %v", all)
	}
}
