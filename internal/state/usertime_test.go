package state

import (
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestUserTime checks that the computing time of a task stays with its attempt when the job runs
// again, and over a snapshot.
func TestUserTime(t *testing.T) {
	x := newScript(t)
	for _, line := range []string{"node n1 gpus=8:h100 cpus=64", "submit ada requeue", "start 1 n1:0"} {
		x.run(line)
	}
	n, _ := x.s.nodes.Get("n1")
	task := cluster.Task{Node: "n1", Phase: cluster.TaskClean, Cause: cluster.NodeFault, Started: 1, CPUTime: 10 * time.Second, User: 7 * time.Second}
	x.apply(&command.ReportTasks{Node: "n1", Epoch: n.Epoch, Seen: x.index, Tasks: []command.TaskReport{{Job: 1, Attempt: 1, Task: task}}})
	back := restore(t, encode(t, x.s), x.s.Digest())
	for what, s := range map[string]*State{"state": x.s, "snapshot": back} {
		j, _ := s.View().Job(1)
		if len(j.Attempts) != 1 || j.Attempts[0].CPUTime != 10*time.Second || j.Attempts[0].User != 7*time.Second {
			t.Errorf("the %s has %+v", what, j.Attempts)
		}
	}
}
