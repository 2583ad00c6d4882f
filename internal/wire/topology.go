package wire

import (
	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// ReadSwitches reads a fabric; it does not expand node lists. The state checks that it is valid.
func ReadSwitches(list []*greylagv1.Switch) []cluster.Switch {
	var all []cluster.Switch
	for _, p := range list {
		all = append(all, cluster.Switch{
			Name: p.GetName(), Nodes: p.GetNodes(), Children: p.GetChildren(), Speed: p.GetSpeed(), Block: p.GetBlock(),
		})
	}
	return all
}

// WriteSwitches is the reverse of ReadSwitches, with the nodes of each switch folded into hostlist
// expressions.
func WriteSwitches(list []cluster.Switch) []*greylagv1.Switch {
	var all []*greylagv1.Switch
	for _, s := range list {
		p := &greylagv1.Switch{Name: s.Name, Children: s.Children, Speed: s.Speed, Block: s.Block}
		if len(s.Nodes) > 0 {
			p.Nodes = []string{hostlist.Compress(s.Nodes)}
		}
		all = append(all, p)
	}
	return all
}

// WriteDisagreements writes the differences between nodes and the fabric.
func WriteDisagreements(list []topology.Mismatch) []*greylagv1.Disagreement {
	var all []*greylagv1.Disagreement
	for _, d := range list {
		all = append(all, &greylagv1.Disagreement{Kind: Enum[greylagv1.DisagreementKind](d.Kind), Nodes: hostlist.Compress(d.Nodes), Text: d.Text})
	}
	return all
}
