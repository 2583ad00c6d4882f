package state

import (
	"bytes"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestTaskOfAnotherGrant checks that a task that another log entry granted under the same job and
// attempt changes nothing of the job, and counts as an orphan on its node.
func TestTaskOfAnotherGrant(t *testing.T) {
	x := newScript(t)
	s := x.s
	for _, line := range []string{"node n1 gpus=8:h100 cpus=64", "submit ada", "start 1 n1:0"} {
		x.run(line)
	}
	j, _ := s.View().Job(1)
	n, _ := s.View().Node("n1")
	ended := cluster.Task{Node: "n1", Phase: cluster.TaskEnded, Cause: cluster.Exited, Exit: cluster.Exit{Code: 3}}
	running := ended
	running.Phase, running.Cause = cluster.TaskStarted, 0
	for _, c := range []struct {
		granted   uint64
		task      cluster.Task
		state     cluster.JobState
		leftovers int32
	}{
		{j.Granted - 1, running, cluster.Configuring, 1},
		{j.Granted - 1, ended, cluster.Configuring, 1},
		{j.Granted, running, cluster.Running, 0},
	} {
		x.apply(&command.ReportTasks{Node: "n1", Epoch: n.Epoch, Tasks: []command.TaskReport{
			{Job: 1, Attempt: 1, Task: c.task, Granted: c.granted},
		}})
		is, _ := s.View().Job(1)
		node, _ := s.View().Node("n1")
		if is.State != c.state || node.Orphans != c.leftovers {
			t.Errorf("grant %d, job's %d: job %s, %d left over; want %s, %d", c.granted, j.Granted, is.State, node.Orphans, c.state, c.leftovers)
		}
	}
}

// TestRestoredHistory checks that a restore records where finished jobs and journal entries begin,
// survives a snapshot, and is in the audit journal.
func TestRestoredHistory(t *testing.T) {
	x := newScript(t)
	s := x.s
	s.limits.tail = 2
	for _, line := range []string{"at 1h", "submit ada", "submit ada", "submit ada", "cancel ada 1", "at 2h", "cancel ada 2", "cancel ada 3"} {
		x.run(line)
	}
	seq, head := s.View().Audited()
	if h := s.View().History(); h != (History{}) || seq == 0 {
		t.Fatalf("before a restore: %+v, %d audit entries", h, seq)
	}
	s.Effects()
	since, taken := s.now, s.now.Add(-time.Minute)
	s.Apply(1<<50, since.Add(time.Hour), &command.Restored{Taken: taken})
	want := History{Restored: since.Add(time.Hour), Taken: taken, Index: 1 << 50, FirstJob: 2, JobsSince: since, Audit: seq, AuditHead: head}
	if h := s.View().History(); h != want {
		t.Errorf("history %+v, want %+v", h, want)
	}
	if audit := s.Effects().Audit; len(audit) != 1 || audit[0].Kind != "restore" || audit[0].Prev != head {
		t.Errorf("audit %+v", audit)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	again, err := decode(bytes.NewReader(encode(t, s)), s.limits)
	if err != nil || again.View().History() != want || again.Digest() != s.Digest() {
		t.Errorf("after a snapshot: %+v, %v", again.View().History(), err)
	}
	s.Apply(1<<51, since.Add(2*time.Hour), &command.Restored{Taken: taken, History: true})
	if h := s.View().History(); h.FirstJob != 2 || h.Audit != seq || h.Index != 1<<51 {
		t.Errorf("after a second restore with history: %+v", h)
	}
}

// TestKnownContentIsStored checks that a script that comes with a job is archived even if the state
// knows its digest, inline and in parts: the archive may have lost it.
func TestKnownContentIsStored(t *testing.T) {
	x := newScript(t)
	text := []byte("#!/bin/sh\n")
	for range 2 {
		spec := jobSpec(t, x)
		spec.Script = digestOf(text)
		if r, refused := x.s.Apply(x.s.index+1, x.s.now, &command.SubmitJobs{
			Actor: actor("ada"), Jobs: []command.Submission{{Spec: spec}}, Blobs: [][]byte{text},
		}).(*command.Refusal); refused {
			t.Fatal(r)
		}
		if blobs := x.s.Effects().Blobs; len(blobs) != 1 || string(blobs[0].Content) != string(text) {
			t.Errorf("stored %v", blobs)
		}
	}
	for _, part := range []struct{ at, end int }{{0, 4}, {4, len(text)}, {4, len(text)}} {
		if r, refused := x.s.Apply(x.s.index+1, x.s.now, &command.PutBlob{
			Digest: digestOf(text), Size: int64(len(text)), Offset: int64(part.at), Part: text[part.at:part.end],
		}).(*command.Refusal); refused {
			t.Fatal(r)
		}
	}
	if blobs := x.s.Effects().Blobs; len(blobs) != 1 || string(blobs[0].Content) != string(text) {
		t.Errorf("stored %v", blobs)
	}
}

// jobSpec returns the specification of a job that a script would submit.
func jobSpec(t *testing.T, x *script) cluster.JobSpec {
	t.Helper()
	x.run("submit ada")
	j, known := x.s.job(x.s.jobTables.next - 1)
	if !known {
		t.Fatal("the job was not submitted")
	}
	x.s.Effects()
	return *j.Spec
}
