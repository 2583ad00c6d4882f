package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestAPartitionRefusesAPromisedJob changes the policy so that a partition refuses a job that was
// promised a start in it. The job moves to its other partition, or waits; both record the partition
// as the cause.
func TestAPartitionRefusesAPromisedJob(t *testing.T) {
	for _, x := range []struct {
		others, broken string
		change         func(*cluster.Partition)
	}{
		{" or=b", "partition a allows 30:00", func(p *cluster.Partition) { p.MaxTime = 30 * time.Minute }},
		{" or=b", "partition a is down", func(p *cluster.Partition) { p.Down = true }},
		{"", "partition a is down", func(p *cluster.Partition) { p.Down = true }},
		{"", `requests 1:00:00; partition "a" allows 30:00`, func(p *cluster.Partition) { p.MaxTime = 30 * time.Minute }},
	} {
		snap := draw(t, `
			node n1 gpus=1
			node n2 gpus=1
			partition a nodes=n1
			partition b nodes=n2
			run 1 on=n1:0 gpus=1 part=a left=10m limit=1h
			run 2 on=n2:0 gpus=1 part=b left=20m limit=1h
			job 3 gpus=1 limit=1h part=a`+x.others)
		p := NewPlanner()
		keepPromised(snap, p.Pass(snap))
		if old := snap.Pending[0].Promise; old == nil || old.Partition != "a" {
			t.Fatalf("promised %+v", old)
		}
		next := later(snap, time.Minute)
		policy := *snap.Policy
		policy.Partitions = append([]cluster.Partition{}, policy.Partitions...)
		x.change(&policy.Partitions[0])
		next.Policy = &policy
		for _, planner := range []*Planner{p, NewPlanner()} {
			d := planner.Pass(next)
			if len(d.Plan.Verdicts) != 1 || d.Plan.Verdicts[0].Broken != x.broken {
				t.Fatalf("want %q, got %+v", x.broken, d.Plan.Verdicts)
			}
			if v := d.Plan.Verdicts[0]; (v.Promise != nil) != (x.others != "") || v.Promise != nil && v.Promise.Partition != "b" {
				t.Errorf("%s: promised %+v", x.broken, v.Promise)
			}
			if got := write(d); x.others != "" && !strings.Contains(got, `; planned in partition "b"; not in partition "a", which `) {
				t.Errorf("%s: %s", x.broken, got)
			}
		}
	}
}
