package state

import (
	"fmt"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

func TestRunTimes(t *testing.T) {
	x := &script{t: t, s: newState(limits{tail: 20, requests: 100, requestBytes: 1 << 20, levels: 1000}, new(table.Hasher)), now: 1}
	x.apply(&command.Init{ClusterID: "test"})
	x.run("node n1 gpus=8:h100 cpus=64 mem=512")
	x.run("policy root")
	var last *cluster.JobSpec
	for i, minutes := range []int{90, 90, 10, 20, 30, 40, 50, 60, 70, 80} { // the first two are too old to count
		x.run("submit ada name=train gpusper=2 time=10h")
		id := i + 1
		x.run(fmt.Sprintf("start %d n1:0,1", id))
		x.now = x.now.Add(time.Duration(minutes) * time.Minute)
		x.run(fmt.Sprintf("report n1 %d/1 clean", id))
		j, known := x.s.View().Job(cluster.JobID(id))
		if !known || j.State != cluster.Completed {
			t.Fatalf("job %d: %+v", id, j)
		}
		last = j.Spec
	}
	usual := x.s.View().RunTimes()
	if d, known := usual(last); !known || d != 50*time.Minute {
		t.Errorf("lasts %s, %v", d, known)
	}
	for what, change := range map[string]func(*cluster.JobSpec){
		"name": func(s *cluster.JobSpec) { s.Name = "other" }, "user": func(s *cluster.JobSpec) { s.Owner.User = "bob" },
		"size": func(s *cluster.JobSpec) { s.Request.GPUsPerNode = 4 }, "script": func(s *cluster.JobSpec) { s.Script[0]++ },
	} {
		other := *last
		change(&other)
		if d, known := usual(&other); known {
			t.Errorf("one of another %s lasts %s", what, d)
		}
	}
}
