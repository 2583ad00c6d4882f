package state

import (
	"slices"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

func ids(seq func(func(*cluster.Job) bool)) []cluster.JobID {
	var list []cluster.JobID
	for j := range seq {
		list = append(list, j.ID)
	}
	return list
}

func scene(t *testing.T) *script {
	x := &script{t: t, s: newState(limits{tail: 20, requests: 10, requestBytes: 1 << 20, levels: 1000}, new(table.Hasher)), now: 1}
	for _, line := range []string{
		"policy root other=n2", "node n1 gpus=4:h100", "node n2 gpus=2:h100",
		"submit ada times=3 gpusper=1", "submit bob array=3-9:2", "submit ada",
		"start 2 n1:3 + 5 n1 + 8 n2", "cancel ada 1", "report n1 2/1 ended, 5/1 started", "report n1 2/1 clean, 5/1 started",
	} {
		if answer := x.run(line); len(answer) > 7 && answer[:7] == "refused" {
			t.Fatalf("%s: %s", line, answer)
		}
	}
	return x
}

// on yields the jobs on a node.
func on(v *View, node string) func(func(*cluster.Job) bool) {
	return func(yield func(*cluster.Job) bool) {
		for j, rank := range v.OnNode(node) {
			if j.Alloc.Nodes[rank].Node != node || !yield(j) {
				return
			}
		}
	}
}

func TestViewLists(t *testing.T) {
	v := scene(t).s.View()
	for _, c := range []struct {
		what string
		got  []cluster.JobID
		want []cluster.JobID
	}{
		{"all", ids(v.Jobs(0)), []cluster.JobID{3, 4, 5, 6, 7, 8}},
		{"after 5", ids(v.Jobs(5)), []cluster.JobID{6, 7, 8}},
		{"after the last", ids(v.Jobs(8)), nil},
		{"ada's", ids(v.UserJobs("ada", 0)), []cluster.JobID{3, 8}},
		{"bob's after 5", ids(v.UserJobs("bob", 5)), []cluster.JobID{6, 7}},
		{"no user's", ids(v.UserJobs("ad", 0)), nil},
		{"on n1", ids(on(v, "n1")), []cluster.JobID{5}},
		{"on n2", ids(on(v, "n2")), []cluster.JobID{8}},
		{"on nothing", ids(on(v, "n")), nil},
		{"array", v.Resolve(cluster.JobRef{ID: 4, Index: cluster.NoIndex}), []cluster.JobID{4, 5, 6, 7}},
		{"element", v.Resolve(cluster.JobRef{ID: 4, Index: 7}), []cluster.JobID{6}},
		{"no element", v.Resolve(cluster.JobRef{ID: 4, Index: 4}), nil},
		{"an element as a job", v.Resolve(cluster.JobRef{ID: 6, Index: cluster.NoIndex}), []cluster.JobID{6}},
		{"ended", v.Resolve(cluster.JobRef{ID: 2, Index: cluster.NoIndex}), []cluster.JobID{2}},
		{"unknown", v.Resolve(cluster.JobRef{ID: 99, Index: cluster.NoIndex}), nil},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if span := v.Span(4); span != (command.IndexRange{First: 3, Last: 9, Step: 2}) {
		t.Errorf("span of the array %+v", span)
	}
	if span := v.Span(8); span != (command.IndexRange{}) {
		t.Errorf("span of what is no array %+v", span)
	}
	for j := range v.Jobs(0) { // a caller that stops early must be able to
		if j.ID == 4 {
			break
		}
	}
}

func TestViewTells(t *testing.T) {
	v := scene(t).s.View()
	if c := v.Counts(); c.Active != 6 || c.ByState[cluster.Pending] != 4 || c.ByState[cluster.Running] != 1 || c.Finished != 2 || c.Nodes != 2 {
		t.Errorf("counts %+v", c)
	}
	if got := v.PartitionNodes("other"); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("nodes of other: %v", got)
	}
	if got := v.PartitionNodes("main"); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("nodes of main: %v", got)
	}
	if v.PartitionNodes("none") != nil {
		t.Error("a partition that is not there has nodes")
	}
	if u := v.Use("n1"); u.Jobs != 1 || len(u.GPUs) != 4 || u.GPUs[3] {
		t.Errorf("use of n1: %+v", u)
	}
	var seqs []uint64
	for f := range v.Tail(1) {
		seqs = append(seqs, f.Seq)
		if j, err := command.DecodeJob(f.Record); err != nil || j.ID != f.Job.ID {
			t.Errorf("record of job %d: %v", f.Job.ID, err)
		}
	}
	if !slices.Equal(seqs, []uint64{2}) || v.FinishedSeq() != 2 {
		t.Errorf("tail %v, newest %d", seqs, v.FinishedSeq())
	}
}

func TestSchedulingSnapshot(t *testing.T) {
	v := scene(t).s.View()
	s := v.Snapshot()
	if s.Index != v.Index() || s.Now != v.Now() || s.Policy != v.Policy() || len(s.Nodes) != 2 {
		t.Errorf("snapshot %+v", s)
	}
	if a, p := len(s.Active), len(s.Pending); a != 2 || p != 4 {
		t.Errorf("%d active, %d pending", a, p)
	}
	if j := s.Ended(2); j == nil || j.State != cluster.Completed || !j.Exit.OK() {
		t.Errorf("job 2 ended %+v", j)
	}
	if s.Ended(5) != nil {
		t.Error("a running job has ended")
	}
	if first, count, known := s.Elements(4); first != 4 || count != 4 || !known {
		t.Errorf("array 4 has %d from %d, %v", count, first, known)
	}
	if _, _, known := s.Elements(5); known {
		t.Error("an element is an array")
	}
	if id, known := s.Element(4, 9); id != 7 || !known {
		t.Errorf("element 9 is %d, %v", id, known)
	}
}

func TestEffects(t *testing.T) {
	x := scene(t)
	x.s.Effects()
	x.run("submit ada script=text")
	x.run("cancel ada 9")
	e := x.s.Effects()
	if len(e.Blobs) != 1 || string(e.Blobs[0].Content) != "text" || e.Blobs[0].Digest != digestOf([]byte("text")) {
		t.Errorf("blobs %v", e.Blobs)
	}
	if len(e.Finished) != 1 || e.Finished[0].Seq != 3 || e.Finished[0].Job.ID != 9 {
		t.Errorf("finished %v", e.Finished)
	}
	if n := len(e.Changed); n != 2 || e.Changed[0].Old != nil || e.Changed[0].New != e.Changed[1].Old || e.Changed[1].New.State != cluster.Cancelled {
		t.Errorf("changes %+v", e.Changed)
	}
	if e := x.s.Effects(); e.Blobs != nil || e.Finished != nil || e.Changed != nil {
		t.Error("effects are returned twice")
	}
	if v := x.s.View(); v != x.s.View() {
		t.Error("two views of one state")
	}
}
