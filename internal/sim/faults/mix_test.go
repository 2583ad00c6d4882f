package faults

import (
	"strings"
	"testing"
	"time"
)

func TestMix(t *testing.T) {
	const text = "node-mtbf=30d,repair=90m0s,late-report=0.5,fail=0.05"
	m, err := Parse("", "node-mtbf = 30d, late-report=50% # most\nrepair=1h30m\nfail=0.05\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := (Mix{NodeMTBF: 30 * 24 * time.Hour, Repair: 90 * time.Minute, Late: 0.5, Fail: 0.05}); m != want {
		t.Errorf("%+v", m)
	}
	again, err := Parse("", m.String())
	if err != nil || again != m || m.String() != strings.Replace(text, "90m0s", "1h30m0s", 1) {
		t.Errorf("%s: %+v, %v", m, again, err)
	}
	for text, says := range map[string]string{
		"node-mbtf=3d": "is not one of", "fail=2": "want a part", "fail": "want a part", "repair=0s": "want a duration", "admin=1d,admin=2d": "twice", "leader-change=-1h": "want a duration", "fail=nan": "want a part",
	} {
		if _, err := Parse("", text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestNext: the mean is as requested, and the times are the same for the same seed, whatever else
// was drawn.
func TestNext(t *testing.T) {
	var sums [2]time.Duration
	for i := range sums {
		d := NewStreams(7)
		for range 4000 {
			if i == 1 {
				d.Of(GPUs).Uint64()
			}
			wait, ok := Next(d.Of(Nodes), 10*24*time.Hour, 10)
			if !ok {
				t.Fatal("never")
			}
			sums[i] += wait
		}
	}
	mean := sums[0] / 4000
	if sums[0] != sums[1] || mean < 22*time.Hour || mean > 26*time.Hour {
		t.Errorf("mean %s, or %s", mean, sums[1]/4000)
	}
	if _, ok := Next(NewStreams(1).Of(Nodes), 0, 10); ok {
		t.Error("what has no mean time happens")
	}
}
