package accounting

import (
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestStretchesOfNothing: a segment without metered time has the price that its first metered time will have.
func TestStretchesOfNothing(t *testing.T) {
	at := func(d time.Duration) cluster.Instant { return cluster.Instant(time.Hour + d) }
	priced := func(price Credits) []Priced { return []Priced{{GPUs{"h100", 1}, price}} }
	g := &Segment{GPUType: "h100", GPUs: 1, Price: 3, Since: at(0), Past: []Past{{at(100 * time.Microsecond), priced(1)}, {at(time.Minute), priced(2)}}}
	for _, ms := range []int64{0, 1, 60_000} {
		all := slices.Collect(g.stretches(ms))
		if len(all) != 1 || all[0].Since != at(100*time.Microsecond) || all[0].Millis != ms || all[0].Shares[0].Price != 2 {
			t.Errorf("%d ms: %+v", ms, all)
		}
	}
	g.Past = nil
	if all := slices.Collect(g.stretches(0)); len(all) != 1 || all[0].Since != g.Since || all[0].Shares[0].Price != 3 {
		t.Errorf("without a change of prices: %+v", all)
	}
}
