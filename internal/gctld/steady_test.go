package gctld

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSteadyClockCatchesUpGently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		clock := newSteady(func() time.Time { return time.Now().Add(offset) })
		began := time.Now()
		passes := func(d time.Duration, want time.Duration) {
			t.Helper()
			for range 100 {
				time.Sleep(d / 100)
				clock.Now()
			}
			if got := clock.Now().Round(0).Sub(began.Round(0)); (got - want).Abs() > time.Second {
				t.Fatalf("after %s it says %s, want %s", time.Since(began), got, want)
			}
		}
		passes(time.Hour, time.Hour)
		offset = time.Hour
		passes(time.Hour, 2*time.Hour+6*time.Minute)
		passes(20*time.Hour, 23*time.Hour) // it has caught up
		offset = -time.Hour
		passes(time.Hour, 23*time.Hour+54*time.Minute)
		offset = 50 * time.Millisecond
		passes(time.Hour, 24*time.Hour+48*time.Minute) // still catching up
	})
}
