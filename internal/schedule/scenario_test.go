package schedule

import (
	"testing"

	"github.com/greylag/greylag/test/scenario"
)

// TestScenarios reads testdata/*.txt: the nodes and jobs of a cluster, and the decision.
func TestScenarios(t *testing.T) {
	scenario.Cases(t, "testdata/*.txt", func(t *testing.T, text string) string { return write(Decide(draw(t, text))) })
}
