package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/explain"
)

// TestGrowthObstacleIsLasting explains twice why a job does not grow: the text does not depend on when it is read.
func TestGrowthObstacleIsLasting(t *testing.T) {
	snap := draw(t, "node n1 gpus=8\nnode n2 gpus=8\nrun 1 on=n1:0-7 nodes=1 most=2 step=1 gpus=8 limit=10h left=9h resized=5m\n")
	first := explain.Growth(snap, snap.Active[0])
	snap.Now = snap.Now.Add(time.Minute)
	if later := explain.Growth(snap, snap.Active[0]); later != first || !strings.Contains(first, "at 2026-03-01T11:55:00Z") {
		t.Errorf("%q, later %q", first, later)
	}
}
