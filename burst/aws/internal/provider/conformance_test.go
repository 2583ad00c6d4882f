package provider

import (
	"testing"
	"time"

	"github.com/greylag/greylag/internal/burst/check"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestConformance: the program keeps every rule of gctl burst check, also while EC2 lists new instances late.
func TestConformance(t *testing.T) {
	server := newServer(time.Now)
	server.VisibleAfter, server.EndTime = 300*time.Millisecond, 300*time.Millisecond
	rules := 0
	failed, err := check.Run(t.Context(), check.Config{
		Provider: programOf(t, server), Wait: time.Minute, Poll: 50 * time.Millisecond,
		Confirm: func(cluster.Offer, string) bool { return true },
		Report: func(r check.Result) {
			rules++
			if r.Problem != "" {
				t.Errorf("%s: %s", r.Rule, r.Problem)
			}
		},
	})
	if err != nil || failed > 0 || rules < 15 {
		t.Errorf("%d of %d rules are broken, %v", failed, rules, err)
	}
	for _, i := range server.Instances() {
		if i.Ended.IsZero() {
			t.Errorf("%s is still running", i.ID)
		}
	}
}
