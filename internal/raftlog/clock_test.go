package raftlog

import (
	"bytes"
	"encoding/binary"
	"slices"
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
		{[]time.Duration{h}, 0},            // two clocks: undecidable
		{[]time.Duration{h, 0}, 0},         // one peer is wrong
		{[]time.Duration{h, h}, h},         // the leader is wrong
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

// TestLeaderWithAWrongClockStepsDown checks that a leader with a wrong clock transfers leadership
// to a member with a correct one.
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

// skewed is a fleet whose members' clocks can be set.
type skewed struct {
	*fleet
	wall, stamp map[string]*atomic.Int64 // offset by member
}

func newSkewed(t *testing.T) skewed {
	s := skewed{newFleet(t, nil), map[string]*atomic.Int64{}, map[string]*atomic.Int64{}}
	s.tweak = func(c *Config) {
		wall, stamp := &atomic.Int64{}, &atomic.Int64{}
		s.wall[c.ID], s.stamp[c.ID] = wall, stamp
		c.Wall = func() time.Time { return time.Now().Add(time.Duration(wall.Load())) }
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(stamp.Load())) }
	}
	return s
}

func (s skewed) set(n *node, wall, stamp time.Duration) {
	s.wall[n.cfg.ID].Store(int64(wall))
	s.stamp[n.cfg.ID].Store(int64(stamp))
}

// stampedAhead returns how far the time in any member's state is ahead of the real time.
func (s skewed) stampedAhead() (worst time.Duration) {
	for _, n := range s.nodes {
		n.fsm.mu.Lock()
		worst = max(worst, time.Until(time.Unix(0, n.fsm.lastAt)))
		n.fsm.mu.Unlock()
	}
	return worst
}

// goOn proposes for a minute.
func (s skewed) goOn() {
	s.t.Helper()
	for range 60 {
		s.propose("x")
		time.Sleep(time.Second)
	}
	if ahead := s.stampedAhead(); ahead > clockTolerance {
		s.t.Errorf("an entry is stamped %v ahead of time", ahead)
	}
}

// TestWrongClockNeverStamps checks that a member that starts with a wrong clock stamps no entry,
// even if it becomes leader.
func TestWrongClockNeverStamps(t *testing.T) {
	for _, c := range []struct {
		name        string
		wall, stamp time.Duration
	}{
		{"both", time.Hour, time.Hour},
		{"still following", 0, time.Hour}, // fixed a moment ago
		{"behind", -time.Hour, -time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newSkewed(t)
				defer f.close()
				f.grow(3)
				f.propose("first")
				wrong := f.followers()[0]
				f.set(wrong, c.wall, c.stamp)
				wrong = f.restart(wrong)
				f.until("it has the log", func() bool { return len(wrong.fsm.list()) > 0 })
				f.must(f.leader().Transfer(f.ctx(), wrong.self.ID))
				f.goOn()
				if f.leader() == wrong {
					t.Error("it leads")
				}
			})
		})
	}
}

// TestLostLeadersClockIsRemembered checks that the lost leader's last clock reading decides between
// the two remaining members.
func TestLostLeadersClockIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSkewed(t)
		defer f.close()
		f.grow(3)
		f.propose("first")
		leader, wrong := f.leader(), f.followers()[0]
		f.set(wrong, time.Hour, time.Hour)
		wrong = f.restart(wrong)
		time.Sleep(5 * time.Second)
		f.must(leader.Close())
		f.nodes = slices.DeleteFunc(f.nodes, func(n *node) bool { return n == leader })
		f.leader()
		if other := f.followers()[0]; other == wrong {
			f.leader().Transfer(f.ctx(), wrong.self.ID)
		}
		f.goOn()
		if f.leader() == wrong {
			t.Error("it leads")
		}
	})
}

// TestAllClocksDiffer checks that the member nearest to the median leads when all clocks are wrong:
// there is always a leader.
func TestAllClocksDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSkewed(t)
		defer f.close()
		f.grow(3)
		for i, n := range f.nodes {
			off := time.Duration(i-1) * time.Hour
			f.set(n, off, off)
		}
		middle := f.nodes[1]
		f.until("the middle one leads", func() bool { return f.leader() == middle })
		f.must(middle.Close())
		f.nodes = []*node{f.nodes[0], f.nodes[2]}
		f.propose("goes on")
	})
}

// TestProbeFramesOfOtherVersions checks that frames with fewer or more fields are read.
func TestProbeFramesOfOtherVersions(t *testing.T) {
	whole := peerStatus{Term: 3, Leader: true, Applied: 9, Now: -4, Stamp: 7, DigestVersion: 8}
	var wire bytes.Buffer
	if err := writeFrame(&wire, &whole); err != nil {
		t.Fatal(err)
	}
	body := wire.Bytes()[2:]
	for n := range len(body) + 40 {
		frame := make([]byte, 2+n)
		binary.LittleEndian.PutUint16(frame, uint16(n))
		copy(frame[2:], body)
		var got peerStatus
		if err := readFrame(bytes.NewReader(frame), &got); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if n >= len(body) && got != whole {
			t.Errorf("%d bytes: %+v", n, got)
		}
		if n == 8 && got != (peerStatus{Term: 3}) {
			t.Errorf("8 bytes: %+v", got)
		}
	}
	if err := readFrame(bytes.NewReader([]byte{0xff, 0xff}), &whole); err == nil {
		t.Error("a frame of 64 KiB is read")
	}
}
