package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestFailsOften: nodes with three failures are compared with the rate of their cluster, and at most a tenth of
// the nodes fail often.
func TestFailsOften(t *testing.T) {
	now := InstantOf(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	day := 24 * time.Hour
	fleet := func(failures ...int) (list []*Node) {
		for i := range 40 {
			n := &Node{Name: fmt.Sprintf("n%02d", i), Joined: now.Add(-60 * day)}
			for k := range failures[min(i, len(failures)-1)] {
				n.Failures = append(n.Failures, NodeFailure{At: now.Add(-time.Duration(k+1) * day)})
			}
			list = append(list, n)
		}
		return list
	}
	for _, c := range []struct {
		failures []int
		often    []string
	}{
		{[]int{0}, nil},
		{[]int{2, 0}, nil},             // too few to say
		{[]int{3, 0}, []string{"n00"}}, // the others never failed
		{[]int{3, 2}, nil},             // all fail: the cluster is at fault
		{[]int{3, 4, 5, 6, 7, 0}, []string{"n01", "n02", "n03", "n04"}}, // a tenth
	} {
		if got := OftenFailing(fleet(c.failures...), now); !slices.Equal(got, c.often) {
			t.Errorf("%v failures: %v, want %v", c.failures, got, c.often)
		}
	}
	old := fleet(3, 0)
	if got := OftenFailing(old, now.Add(FailureWindow)); len(got) > 0 {
		t.Errorf("after 28 days: %v", got)
	}
}

// TestFailureRate: a new cluster is expected to fail as published ones do, and an old one as it did.
func TestFailureRate(t *testing.T) {
	for _, c := range []struct {
		rate FailureRate
		want int64
	}{
		{FailureRate{}, 3800},
		{FailureRate{Failures: 6500, NodeHours: 1e6 * 24}, 6497},
		{FailureRate{Failures: 7, NodeHours: 1000 * 24}, 5400},
	} {
		if got := c.rate.Thousandths(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.rate, got, c.want)
		}
	}
}

// TestAppendFailure: reports within 10 minutes are of one failure, and old ones are forgotten.
func TestAppendFailure(t *testing.T) {
	var list []NodeFailure
	at := Instant(time.Hour)
	for _, after := range []time.Duration{0, 5 * time.Minute, 9 * time.Minute, 11 * time.Minute} {
		list = AppendFailure(list, NodeFailure{At: at.Add(after), Cause: after.String()})
	}
	if len(list) != 2 || list[1].Cause != "11m0s" {
		t.Errorf("failures: %v", list)
	}
	if list = AppendFailure(list, NodeFailure{At: at.Add(2 * FailureWindow)}); len(list) != 1 {
		t.Errorf("after 56 days: %v", list)
	}
	for i := range 20 {
		list = AppendFailure(list, NodeFailure{At: at.Add(2*FailureWindow + time.Duration(i+1)*time.Hour)})
	}
	if len(list) != MaxNodeFailures {
		t.Errorf("%d failures", len(list))
	}
}
