package state

import (
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestLimitsBeforeTheirForm: before form 6 a limit on a type of GPU holds who names none,
// whatever GPUs there are, as members of older builds have it.
func TestLimitsBeforeTheirForm(t *testing.T) {
	x := newScript(t)
	x.s.credits = accounting.NewBare()
	x.s.credits.Write(limitsForm - 1)
	for _, line := range []string{"node n1 gpus=8:h100 cpus=64", "policy root", "account op add ml MaxTRESPerJob=gpu:a1000=1 + add ml user=ada"} {
		x.run(line)
	}
	if got := x.run("submit ada gpusper=2"); !strings.Contains(got, "refused (5): MaxTRESPerJob gpu:a1000 of account ml is 1") {
		t.Errorf("before: %s", got)
	}
	x.apply(&command.Tick{Form: limitsForm})
	if got := x.run("submit ada gpusper=2"); got != "submitted [1]" {
		t.Errorf("from then on: %s", got)
	}
}

// TestExclusiveBeforeItsForm: before form 6 an exclusive job has, and limits hold it to, what it
// asks for, as members of older builds have it; one that runs keeps that.
func TestExclusiveBeforeItsForm(t *testing.T) {
	x := newScript(t)
	x.s.credits = accounting.NewBare()
	x.s.credits.Write(wholeForm - 1)
	for _, line := range []string{"node n1 gpus=4:h100 cpus=64", "node n2 gpus=4:h100 cpus=64", "policy root", "account op add ml MaxTRESPerNode=gpu=2,cpu=2 + add ml user=ada"} {
		x.run(line)
	}
	if got := x.run("submit ada exclusive times=2"); got != "submitted [1 2]" {
		t.Errorf("before: %s", got)
	}
	x.run("start 1 n1")
	x.apply(&command.Tick{Form: wholeForm})
	x.run("account op modify ml MaxTRESPerNode=cpu=-1,gpu=-1")
	x.run("start 2 n2")
	if got := x.run("nodes"); got != "n1 ALLOCATED epoch 2 jobs 1 cpus 1 mem 64G gpus []\nn2 ALLOCATED epoch 3 jobs 1 cpus 64 mem 64G gpus [0 1 2 3]" {
		t.Errorf("from then on:\n%s", got)
	}
	x.run("account op modify ml MaxTRESPerNode=gpu=2")
	if got := x.run("submit ada exclusive"); !strings.Contains(got, "refused (5): MaxTRESPerNode gpu of account ml is 2: the job asks for up to 4 on one node") {
		t.Errorf("from then on: %s", got)
	}
}

// TestLaterLimits: limits that members of older builds do not know are not asked of the log
// before all know them.
func TestLaterLimits(t *testing.T) {
	x := newScript(t)
	x.s.credits = accounting.NewBare()
	x.s.credits.Write(limitsForm - 1)
	older := cluster.Limit{Kind: cluster.MaxTRESPerJob, Resource: cluster.ResourceGPU}
	for _, kind := range []cluster.LimitKind{cluster.MaxTRESPerNode, cluster.MinTRESPerJob} {
		refusal := x.s.View().CheckSupported([]cluster.Limit{older, {Kind: kind, Resource: cluster.ResourceGPU}})
		if refusal == nil || refusal.Message != kind.String()+": not every controller knows this limit yet" {
			t.Errorf("%s before: %v", kind, refusal)
		}
	}
	if refusal := x.s.View().CheckSupported([]cluster.Limit{older}); refusal != nil {
		t.Errorf("an old one: %v", refusal)
	}
	x.apply(&command.Tick{Form: limitsForm})
	if refusal := x.s.View().CheckSupported([]cluster.Limit{{Kind: cluster.MaxTRESPerNode, Resource: cluster.ResourceGPU}}); refusal != nil {
		t.Errorf("from then on: %v", refusal)
	}
}
