package checkpoint

import (
	"math"
	"testing"
	"time"
)

// TestAdvise compares intervals and losses with published ones: failures in 1,000 node-days, times 1,000.
func TestAdvise(t *testing.T) {
	for _, c := range []struct {
		nodes, thousandths int64
		save, restart      time.Duration
		minutes            float64
		useful             float64 // percent
	}{
		{64, 6500, 10 * time.Second, 10 * time.Minute, 34, 98.7},
		{64, 6500, time.Minute, 10 * time.Minute, 83, 97.3},
		{64, 6500, 5 * time.Minute, 10 * time.Minute, 186, 94.5},
		{128, 6500, 10 * time.Second, 10 * time.Minute, 24, 98.0},
		{128, 6500, 5 * time.Minute, 10 * time.Minute, 132, 92.1},
		{2048, 3800, 10 * time.Second, 10 * time.Minute, 8, 90.6},
	} {
		costs := Costs{Save: c.save, Restart: c.restart}
		a := Advise(c.nodes, c.thousandths, costs)
		if math.Abs(a.Every.Minutes()-c.minutes) > max(1, c.minutes/20) || math.Abs(100*(1-a.Loss)-c.useful) > 0.6 {
			t.Errorf("%d nodes, save %s: every %s, useful %.1f %%; want %v min, %v %%", c.nodes, c.save, a.Every, 100*(1-a.Loss), c.minutes, c.useful)
		}
		for _, other := range []time.Duration{a.Every / 2, a.Every * 2} {
			if a.LossAt(other, costs) <= a.Loss {
				t.Errorf("%d nodes, save %s: less is lost every %s", c.nodes, c.save, other)
			}
		}
	}
	if a := Advise(1, 1, Costs{}); a.Every != 0 || a.Loss != 0 {
		t.Errorf("without costs: %+v", a)
	}
}
