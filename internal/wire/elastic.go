package wire

import (
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

func writeElastic(x *cluster.JobSpec) *greylagv1.Elastic {
	if !x.Elastic.On() {
		return nil
	}
	return &greylagv1.Elastic{Step: x.Elastic.Step, Signal: x.Elastic.Signal, BatchOnly: x.Elastic.BatchOnly}
}

// writeMembers writes the nodes of an elastic job that has an allocation. O(members).
func writeMembers(j *cluster.Job) *greylagv1.JobMembers {
	if j.Members == nil || j.Alloc == nil {
		return nil
	}
	extra := j.ExtraRanks()
	p := &greylagv1.JobMembers{Version: j.Members.Version, Resized: Timestamp(j.Members.Resized), StartNodes: j.Members.Start, Left: writeLeft(&j.Members.Left)}
	for _, x := range j.Members.Changes {
		p.Changes = append(p.Changes, &greylagv1.MemberChange{Time: Timestamp(x.At), Nodes: x.Nodes, Joins: x.Joins, Why: x.Why})
	}
	for rank := range j.Members.List {
		m := &j.Members.List[rank]
		_, is := slices.BinarySearch(extra, rank)
		p.List = append(p.List, &greylagv1.JobMember{
			Node: j.Alloc.Nodes[rank].Node, Number: m.Number, Extra: is || !m.Stays(), Joins: m.Stays() && m.Since == 0, Leaves: Timestamp(m.Leaves), Why: m.Why, Joined: Timestamp(m.Joined),
		})
	}
	return p
}

func writeLeft(u *cluster.MembersUse) *greylagv1.LeftMembers {
	if u.Held == (cluster.HeldTime{}) {
		return nil
	}
	return &greylagv1.LeftMembers{Held: writeHeld(u.Held), CpuTime: durationpb.New(u.CPUTime), UserTime: durationpb.New(u.User)}
}

func writeHeld(h cluster.HeldTime) *greylagv1.HeldTime {
	if h == (cluster.HeldTime{}) {
		return nil
	}
	return &greylagv1.HeldTime{NodeMs: h.NodeMs, CpuMs: h.CPUMs, GpuMs: h.GPUMs}
}

// writeElasticTask writes what a task of an elastic job is sent of the other nodes. O(members).
func writeElasticTask(j *cluster.Job, rank int) *greylagv1.ElasticTask {
	if j.Members == nil {
		return nil
	}
	return &greylagv1.ElasticTask{
		Number: j.NumberOf(rank), Version: j.Members.Version, Members: j.MemberNames(),
		MinNodes: j.Spec.Request.Nodes, MaxNodes: j.Spec.Request.MaxNodes,
	}
}

// MembersVersion returns the version of the members file of a job; 0 if it has none.
func MembersVersion(j *cluster.Job) uint32 {
	if j.Members == nil {
		return 0
	}
	return j.Members.Version
}

// joinsLate reports whether a node joins a job that runs: its task must not truncate the output of the others.
func joinsLate(j *cluster.Job, rank int) bool {
	return j.Members != nil && j.Members.List[rank].Granted != j.Granted
}
