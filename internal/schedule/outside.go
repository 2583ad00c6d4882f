package schedule

import (
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// outside says of a waiting job without a planned start which rule keeps it from
// having one; nothing when no rule does.
func (r *pass) outside(e *entry) string {
	rules := &r.snap.Policy.Scheduling
	switch {
	case e.at > 0:
		return ""
	case rules.Depth == 0:
		return "; the policy plans no start ahead (depth 0)"
	case rules.Depth != cluster.Unlimited:
		return fmt.Sprintf("; the policy plans the start of at most %s (depth)", count(rules.Depth, "waiting job"))
	case rules.Window > 0:
		return "; no start is planned within the policy's window of " + cluster.FormatElapsed(rules.Window)
	}
	return ""
}
