package accounting

import (
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// IdleText describes what the idle GPUs of a job have cost until an instant: GPU-hours, and credits where they are
// charged.
func IdleText(x *cluster.IdleGPUs, now cluster.Instant) string {
	ms := x.Until(now)
	text := fmt.Sprintf("%.1f GPU-hours", float64(ms)/msPerHour)
	if x.Price > 0 {
		text += ", " + Cost(Credits(x.Price), ms).Short() + " credits"
	}
	return text
}
