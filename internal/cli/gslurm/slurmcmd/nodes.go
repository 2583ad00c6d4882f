package slurmcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/clusterdoc"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// NodeState is the state of a node in Slurm's words.
type NodeState struct {
	Base string // IDLE, MIXED, ALLOCATED, DOWN
	// Drain means that the node takes no new jobs: it is drained, or reports a fault.
	Drain bool
	// Completing means that tasks of earlier jobs still end on a node that has no other reason to take no jobs.
	Completing bool
	// Silent means that the node does not respond.
	Silent   bool
	Reserved bool
	// Reboot means that a reboot is requested, and Rebooting that it has begun.
	Reboot, Rebooting bool
}

// StateOf returns the state of a node.
func StateOf(n *greylagv1.Node) NodeState {
	s := NodeState{Base: "IDLE", Drain: n.Drain || n.Fault != "", Reserved: len(n.Reservations) > 0, Reboot: n.Reboot != nil && !n.Reboot.Issued, Rebooting: n.Reboot.GetIssued()}
	switch {
	case n.Jobs > 0 && (n.CpusUsed >= n.Cpus || len(n.Gpus) > 0 && len(n.GpusUsed) >= len(n.Gpus)):
		s.Base = "ALLOCATED"
	case n.Jobs > 0:
		s.Base = "MIXED"
	}
	switch wire.Word(n.State) {
	case cluster.NodeDown.String():
		s.Base, s.Silent, s.Drain = "DOWN", true, n.Drain
	case cluster.NodeUnknown.String():
		s.Silent = true
	case cluster.NodeDraining.String():
		s.Completing = !s.Drain
	}
	return s
}

// ReasonOf returns why a node takes no jobs and since when: its drain, or the fault that it reports; "" for none.
func ReasonOf(n *greylagv1.Node) (reason string, since *timestamppb.Timestamp) {
	if n.Reason == "" && n.Fault != "" {
		return n.Fault, n.FaultSince
	}
	return n.Reason, n.ReasonSince
}

// Full returns the state with its flags: IDLE+DRAIN.
func (s NodeState) Full() string {
	words := []string{s.Base}
	for _, flag := range []struct {
		on   bool
		word string
	}{{s.Drain, "DRAIN"}, {s.Completing, "COMPLETING"}, {s.Silent, "NOT_RESPONDING"}, {s.Reserved, "RESERVED"}, {s.Reboot, "REBOOT_REQUESTED"}, {s.Rebooting, "REBOOT_ISSUED"}} {
		if flag.on {
			words = append(words, flag.word)
		}
	}
	return strings.Join(words, "+")
}

// Long returns the one word of sinfo %T: idle, mixed, draining; a star follows if the node does not
// respond.
func (s NodeState) Long() string { return s.word(map[string]string{}) }

// Short returns the one word of sinfo %t: idle, mix, drng.
func (s NodeState) Short() string {
	return s.word(map[string]string{"mixed": "mix", "allocated": "alloc", "draining": "drng", "drained": "drain", "reserved": "resv", "completing": "comp"})
}

func (s NodeState) word(short map[string]string) string {
	word := strings.ToLower(s.Base)
	switch {
	case s.Drain && (s.Base == "MIXED" || s.Base == "ALLOCATED"):
		word = "draining"
	case s.Drain:
		word = "drained"
	case s.Completing:
		word = "completing"
	case s.Reserved && s.Base == "IDLE":
		word = "reserved"
	}
	if cut, ok := short[word]; ok {
		word = cut
	}
	switch {
	case s.Rebooting:
		word += "^"
	case s.Reboot:
		word += "@"
	case s.Silent:
		word += "*"
	}
	return word
}

// Available reports whether the node accepts jobs.
func (s NodeState) Available() bool {
	return !s.Drain && !s.Completing && !s.Silent && s.Base != "DOWN"
}

// Gres returns the GPUs and generic resources of a node as Slurm writes them: gpu:h100:4,nvme:2; (null)
// for none.
func Gres(n *greylagv1.Node) string {
	words := gpuWords(n, func(*greylagv1.GPU) bool { return true }, false)
	return OrNull(strings.Join(append(words, ui.GresWords(n.Gres)...), ","))
}

// GresUsed returns the used GPUs and generic resources of a node: gpu:h100:2(IDX:0-1),nvme:0; every one is
// named.
func GresUsed(n *greylagv1.Node) string {
	used := func(g *greylagv1.GPU) bool { return slices.Contains(n.GpusUsed, g.Index) }
	words := gpuWords(n, used, true)
	for _, g := range n.Gres {
		words = append(words, ui.GresWords([]*greylagv1.Gres{{Name: g.Name, Type: g.Type, Count: ui.GresUsed(n, g.Name)}})...)
	}
	return OrNull(strings.Join(words, ","))
}

// TmpDiskMiB returns the scratch space of a node in MiB.
func TmpDiskMiB(n *greylagv1.Node) int64 { return int64(tmpOf(n.Gres) / cluster.MiB) }

// gpuWords counts the GPUs of each type for which count is true.
func gpuWords(n *greylagv1.Node, count func(*greylagv1.GPU) bool, indices bool) []string {
	var types []string
	counted := map[string][]int32{}
	for _, g := range n.Gpus {
		if _, known := counted[g.Type]; !known {
			types = append(types, g.Type)
			counted[g.Type] = nil
		}
		if count(g) {
			counted[g.Type] = append(counted[g.Type], g.Index)
		}
	}
	for i, kind := range types {
		list := counted[kind]
		types[i] = fmt.Sprintf("gpu:%s:%d", kind, len(list))
		if kind == "" {
			types[i] = fmt.Sprintf("gpu:%d", len(list))
		}
		if indices {
			text := "N/A"
			if len(list) > 0 {
				slices.Sort(list)
				text = string(ui.AppendIndices(nil, list))
			}
			types[i] += "(IDX:" + text + ")"
		}
	}
	return types
}

// Policy returns the policy of the cluster.
func Policy(ctx context.Context, c ui.Cluster) (cluster.Policy, error) {
	answer, err := c.Cluster().GetPolicy(ctx, &greylagv1.GetPolicyRequest{})
	if err != nil {
		return cluster.Policy{}, err
	}
	policy, err := clusterdoc.ReadPolicy("policy", []byte(answer.Toml))
	return policy, err
}

// Members returns the nodes of a partition, in the order of their names.
func Members(nodes []*greylagv1.Node, partition string) []*greylagv1.Node {
	var all []*greylagv1.Node
	for _, n := range nodes {
		if slices.Contains(n.Partitions, partition) {
			all = append(all, n)
		}
	}
	return all
}

// NodeNames returns the names of nodes.
func NodeNames(nodes []*greylagv1.Node) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names
}
