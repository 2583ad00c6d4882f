package state

import (
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

func (x *script) lines(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		x.run(line)
	}
}

// TestEndedAttemptsKeepNodesAndExit checks what is recorded of attempts that their own failure, a preemption and a lost
// node ended.
func TestEndedAttemptsKeepNodesAndExit(t *testing.T) {
	x := newScript(t)
	x.lines(`at 1h
node n1 gpus=4:h100
node n2 gpus=4:h100
policy root
submit ada nodes=2 gpusper=4 time=5h requeue retries=1 retryon=exit
start 1 n1:0,1,2,3 n2:0,1,2,3
report n1 1/1 started
report n2 1/1 started
at 2h
report n1 1/1 clean exit=7
report n2 1/1 clean cause=stopped
at 3h
start 1 n1:0,1,2,3 n2:0,1,2,3
report n1 1/2 started
report n2 1/2 started
at 4h
dead n2
report n1 1/2 clean cause=stopped`)
	j, found := x.s.job(1)
	if !found || len(j.Attempts) != 2 {
		t.Fatalf("%d attempts recorded, want 2", len(j.Attempts))
	}
	for i, want := range []struct {
		outcome cluster.JobState
		exit    cluster.Exit
	}{{cluster.Failed, cluster.Exit{Code: 7}}, {cluster.NodeFailed, cluster.Exit{}}} {
		a := &j.Attempts[i]
		if a.Nodes != "n[1-2]" || a.Outcome != want.outcome || a.Exit != want.exit || a.Held != (cluster.HeldTime{}) {
			t.Errorf("attempt %d: %s on %q, exit %+v, held %+v; want %+v on n[1-2]", a.Attempt, a.Outcome, a.Nodes, a.Exit, a.Held, want)
		}
	}
}

// TestChangesOfElasticJobs checks the recorded changes of the nodes, and how long the job had each node.
func TestChangesOfElasticJobs(t *testing.T) {
	x := newScript(t)
	x.lines("at 1h\nnode n1 gpus=4:h100 cpus=8\nnode n2 gpus=4:h100 cpus=8\nnode n3 gpus=4:h100 cpus=8")
	x.lines(`policy root
submit ada nodes=1 upto=3 step=1 gpusper=4 time=10h requeue
pass
commit
report n1 1/1 started
report n2 1/1 started
report n3 1/1 started
at 2h
submit bob nodes=1 gpusper=4 time=1h
pass
commit
at 2h30m
report n3 1/1 clean cause=stopped
at 3h
dead n2`)
	j, _ := x.s.job(1)
	m := j.Members
	if m == nil || m.Start != "n[1-3]" || len(m.Changes) != 2 {
		t.Fatalf("members %+v: want the start on n[1-3] and 2 changes", m)
	}
	for i, want := range []string{"n3 reclaimed for job 2", "n2 lost: not responding"} {
		c := m.Changes[i]
		if got := c.Nodes + " " + c.Why; got != want || c.Joins {
			t.Errorf("change %d is %q, joins %v; want %q", i, got, c.Joins, want)
		}
	}
	held := j.HeldUntil(cluster.Instant(4 * time.Hour))
	hours := float64(held.NodeMs) / float64(time.Hour.Milliseconds())
	if cpus := float64(held.CPUMs) / float64(held.NodeMs); hours < 6.49 || hours > 6.51 || cpus < 1 || held.GPUMs != 4*held.NodeMs {
		t.Errorf("held %+v: %.2f node-hours, want 6.5: 3 of n1, 2 of n2 and 1.5 of n3", held, hours)
	}
}
