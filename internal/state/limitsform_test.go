package state

import (
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestLimitsOfANewerForm checks that a limit that only a newer form of the journal has is refused
// until every member writes that form.
func TestLimitsOfANewerForm(t *testing.T) {
	x := newScript(t)
	formOf := func(k cluster.LimitKind) uint8 {
		if k == cluster.MinTRESPerJob {
			return 2
		}
		return k.Form()
	}
	older := cluster.Limit{Kind: cluster.MaxTRESPerJob, Resource: cluster.ResourceGPU}
	newer := cluster.Limit{Kind: cluster.MinTRESPerJob, Resource: cluster.ResourceGPU}
	refusal := x.s.View().checkSupported([]cluster.Limit{older, newer}, formOf)
	if refusal == nil || refusal.Message != "MinTRESPerJob: not all controllers support this limit yet" {
		t.Errorf("a newer limit in form 1: %v", refusal)
	}
	if refusal := x.s.View().CheckSupported([]cluster.Limit{older, newer}); refusal != nil {
		t.Errorf("limits of form 1: %v", refusal)
	}
	x.apply(&command.Tick{Form: 2})
	if refusal := x.s.View().checkSupported([]cluster.Limit{older, newer}, formOf); refusal != nil {
		t.Errorf("a newer limit in form 2: %v", refusal)
	}
}
