package state

import (
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestNarrowStays checks that the pointer to what passes see of a job that is paid for in one of
// its partitions does not change. A planner takes another specification for another request, and
// would plan again each time.
func TestNarrowStays(t *testing.T) {
	x := &script{t: t, s: New(), now: 1}
	x.apply(&command.Init{ClusterID: "test"})
	for _, line := range []string{
		"at 1h", "node n1 gpus=8:h100 cpus=64", "node n2 gpus=8:h100 cpus=64", "policy root main=n1 other=n2", "charging root on",
		"account op add ml + add ml user=ada", "credit root price type=h100 amount=2",
		"credit root grant account=ml amount=50 partitions=other key=2/1",
		"submit ada gpusper=8 time=1h account=ml partition=main others=other",
	} {
		x.run(line)
	}
	seen := func() *cluster.JobSpec {
		for _, j := range x.s.View().Snapshot().Pending {
			if j.ID == 1 {
				return j.Spec
			}
		}
		t.Fatal("the job does not wait")
		return nil
	}
	first := seen()
	if first.Partition != "other" || len(first.OtherPartitions) != 0 {
		t.Fatalf("passes see partition %s and %v, want the one that is paid for", first.Partition, first.OtherPartitions)
	}
	x.run("hold ada 1")
	x.run("release ada 1")
	if again := seen(); again != first {
		t.Error("the specification is another after a change that does not touch it")
	}
}
