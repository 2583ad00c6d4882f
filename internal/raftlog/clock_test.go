package raftlog

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestMedianOffset(t *testing.T) {
	const h = time.Hour
	for _, c := range []struct {
		offsets []time.Duration
		want    time.Duration
	}{
		{nil, 0},
		{[]time.Duration{h}, 0},            // two clocks: nobody can tell
		{[]time.Duration{h, 0}, 0},         // one peer is off
		{[]time.Duration{h, h}, h},         // the leader is off
		{[]time.Duration{-h, -h}, -h},      //
		{[]time.Duration{h, h, 0}, 0},      // four: two against two
		{[]time.Duration{h, h, h, 0}, h},   //
		{[]time.Duration{h, -h, 1, -1}, 0}, //
	} {
		if got := medianOffset(c.offsets); got != c.want {
			t.Errorf("%v: %v, want %v", c.offsets, got, c.want)
		}
	}
}

// Whoever leads with a wrong clock hands over to one with a right one.
func TestLeaderWithAWrongClockStepsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		skew := map[string]*atomic.Int64{}
		f := newFleet(t, nil)
		f.tweak = func(c *Config) {
			off := &atomic.Int64{}
			skew[c.ID] = off
			c.Clock = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		}
		defer f.close()
		f.grow(3)
		wrong := f.leader()
		skew[wrong.cfg.ID].Store(int64(-time.Hour))
		f.until("another leader", func() bool { return f.leader() != wrong })
		right := f.leader()
		time.Sleep(5 * time.Minute)
		if f.leader() != right {
			t.Error("leadership moved again")
		}
		skew[wrong.cfg.ID].Store(int64(4 * time.Second)) // within tolerance
		f.must(right.Transfer(f.ctx(), wrong.self.ID))
		f.until("handover", func() bool { return f.leader() == wrong })
		time.Sleep(5 * time.Minute)
		if f.leader() != wrong {
			t.Error("a leader 4 s off stepped down")
		}
	})
}
