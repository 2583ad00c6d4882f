package schedule_test

import (
	"fmt"
	"strings"
	"time"
)

// promises prints when each pending job is planned to start, and whether that is promised.
func (x *site) promises() string {
	var out []string
	for _, j := range x.s.View().Snapshot().Pending {
		line := fmt.Sprintf("%d %s has no planned start: %s %s", j.ID, j.Spec.Owner.User, j.Reason, j.Detail)
		if j.Planned > 0 {
			line = fmt.Sprintf("%d %s at %s", j.ID, j.Spec.Owner.User, (j.Planned - x.now).Sub(0).Round(time.Second))
		}
		if j.Promise != nil {
			line += ", promised"
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
