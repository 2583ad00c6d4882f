package totals

import (
	"bytes"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	second = cluster.Instant(time.Second)
	minute = 60 * second
)

// TestLifeOfAJob: a job waits, loses a promise, runs, loses its node, and completes in another
// partition.
func TestLifeOfAJob(t *testing.T) {
	all := New(new(table.Hasher))
	var last *cluster.Job
	step := func(change func(*cluster.Job)) {
		j := &cluster.Job{}
		if last != nil {
			*j = *last
		}
		change(j)
		all.Count(last, j)
		last = j
	}
	step(func(j *cluster.Job) {
		j.ID, j.State, j.Spec, j.Submitted = 1, cluster.Pending, &cluster.JobSpec{Partition: "a", OtherPartitions: []string{"b"}, QOS: "q"}, minute
	})
	step(func(j *cluster.Job) { j.Promise = &cluster.Promise{At: 5 * minute} })
	step(func(j *cluster.Job) {
		j.Promise, j.History = &cluster.Promise{At: 9 * minute}, []cluster.Note{{Broken: "job 7 has not left its nodes in time"}}
	})
	step(func(j *cluster.Job) { j.Detail = "waits" })
	step(func(j *cluster.Job) {
		j.State, j.Partition, j.Started, j.Promise = cluster.Configuring, "a", 4*minute, nil
	})
	step(func(j *cluster.Job) { j.State = cluster.Running })
	step(func(j *cluster.Job) {
		j.State, j.Partition, j.Started, j.Eligible = cluster.Pending, "", 0, 5*minute
		j.Attempts, j.Causes.NodeFailed = []cluster.AttemptRecord{{Started: 4 * minute, Ended: 4*minute + 30*second}}, 1
	})
	step(func(j *cluster.Job) { j.State, j.Partition, j.Started = cluster.Configuring, "b", 5*minute+second })
	step(func(j *cluster.Job) { j.State, j.Ended = cluster.Completed, 3*60*minute })

	a, b := all.of(Key{"a", "q"}), all.of(Key{"b", "q"})
	if a.Submitted != 1 || a.Started != 1 || a.NodeFailed != 1 || a.PromisesMade != 2 || a.PromisesKept != 1 || a.Broken(tally.CauseOverrun) != 1 {
		t.Errorf("%+v", a)
	}
	if a.Wait.Counts[3] != 1 || a.Wait.Millis != 180_000 || a.Run.Counts[2] != 1 || a.Run.Millis != 30_000 {
		t.Errorf("in a it waited %+v and ran %+v", a.Wait, a.Run)
	}
	if b.Submitted != 0 || b.Started != 1 || b.Finished(cluster.Completed) != 1 || b.Wait.Counts[0] != 1 || b.Run.Counts[6] != 1 {
		t.Errorf("%+v", b)
	}
	var sum Total
	sum.Add(a)
	sum.Add(b)
	if sum.Started != 2 || sum.Run.Millis != a.Run.Millis+b.Run.Millis {
		t.Errorf("%+v", sum)
	}
}

// TestSnapshot: what is read is what was written, and totals of removed partitions go.
func TestSnapshot(t *testing.T) {
	all := New(new(table.Hasher))
	for i, name := range []string{"a", "b"} {
		all.Count(nil, &cluster.Job{ID: cluster.JobID(i + 1), Spec: &cluster.JobSpec{Partition: name, QOS: "standard"}})
	}
	var buf bytes.Buffer
	w := table.NewWriter(&buf)
	all.Encode(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	again := New(new(table.Hasher))
	body := buf.Bytes()[5 : buf.Len()-4]
	for c := codec.Reader(body); c.Remaining() > 0; {
		again.Decode(&c)
	}
	if again.Digest() != all.Digest() || again.stored.Len() != 2 || again.Check() != nil {
		t.Errorf("digest %x, want %x; %v", again.Digest(), all.Digest(), again.Check())
	}
	policy := cluster.DefaultPolicy()
	policy.Partitions[0].Name = "b"
	again.Retain(&policy)
	if again.stored.Len() != 2 || !again.stored.Has(Key{"b", "standard"}) || !again.stored.Has(Removed) || again.Check() != nil {
		t.Error(again.stored.Len(), again.Check())
	}
	digest := again.Digest()
	if again.Retain(&policy); again.Digest() != digest {
		t.Error("the totals of removed partitions changed")
	}
}
