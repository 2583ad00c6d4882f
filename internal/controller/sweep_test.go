package controller

import (
	"crypto/sha256"
	"log/slog"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// driven is a replica whose commands and time the test sets.
type driven struct {
	*Replica
	t       *testing.T
	archive *archive.Archive
	sweeper Sweeper
	index   uint64
	now     time.Time
}

func newDriven(t *testing.T, keep archive.Keep) *driven {
	quiet := slog.New(slog.DiscardHandler)
	a, err := archive.Open(t.TempDir(), archive.Options{Pause: time.Millisecond})
	must(t, err)
	t.Cleanup(func() { a.Close() })
	d := &driven{Replica: NewReplica(a, quiet), t: t, archive: a, now: time.Unix(1_700_000_000, 0)}
	d.sweeper = Sweeper{Replica: d.Replica, Archive: a, Keep: keep, Logger: quiet}
	d.do(&command.Init{ClusterID: "driven", Policy: cluster.DefaultPolicy()})
	return d
}

func (d *driven) do(c command.Command) command.Result {
	d.t.Helper()
	d.index++
	result := d.Apply(d.index, d.now.UnixNano(), [][]byte{command.Encode(c)})[0]
	if refusal, ok := result.(*command.Refusal); ok {
		d.t.Fatalf("%T refused: %s", c, refusal.Message)
	}
	return result.(command.Result)
}

// submit submits a pending job with a script.
func (d *driven) submit(script string) (cluster.JobID, cluster.Digest) {
	d.t.Helper()
	digest := cluster.Digest(sha256.Sum256([]byte(script)))
	spec := cluster.JobSpec{Name: "j", Owner: ada.Identity, WorkDir: "/", TimeLimit: time.Hour, Script: digest, Request: cluster.Request{Nodes: 1}}
	result := d.do(&command.SubmitJobs{Actor: ada, Jobs: []command.Submission{{Spec: spec}}, Blobs: [][]byte{[]byte(script)}})
	return result.(*command.Submitted).First[0], digest
}

// after advances time and sweeps.
func (d *driven) after(span time.Duration) {
	d.t.Helper()
	d.now = d.now.Add(span)
	d.do(&command.Tick{})
	must(d.t, d.archive.Sync())
	d.sweeper.sweep()
}

func (d *driven) has(digest cluster.Digest) bool {
	d.t.Helper()
	_, ok, err := d.archive.Blob(digest)
	must(d.t, err)
	return ok
}

// TestSweepLeavesWhatJobsNeed checks that the script of a pending job stays whatever its age and
// the space. That of a finished job is deleted after a while, and returns with the next job that
// names it.
func TestSweepLeavesWhatJobsNeed(t *testing.T) {
	d := newDriven(t, archive.Keep{Age: 48 * time.Hour, Bytes: 1})
	_, waiting := d.submit("#!/bin/sh\nwaits\n")
	ended, script := d.submit("#!/bin/sh\nends\n")
	d.do(&command.CancelJobs{Actor: ada, Jobs: []cluster.JobRef{{ID: ended, Index: cluster.NoIndex}}})
	d.after(10 * time.Minute) // a user may submit the same script again without sending it
	if !d.has(script) || !d.has(waiting) {
		t.Fatal("a script is gone that the state still holds")
	}
	d.after(2 * time.Hour)
	if d.has(script) {
		t.Error("a script that no job needs is there, beyond the size")
	}
	d.after(1000 * time.Hour)
	if !d.has(waiting) {
		t.Error("the script of a job that waits is gone")
	}
	if _, again := d.submit("#!/bin/sh\nends\n"); again != script {
		t.Fatal("another digest")
	}
	d.after(time.Hour)
	if !d.has(script) {
		t.Error("a script that came again is gone")
	}
}

// TestDeletedScriptsAreNoGap checks that an archive is complete without the script of a finished
// job; that of a pending job is recorded as absent.
func TestDeletedScriptsAreNoGap(t *testing.T) {
	d := newDriven(t, archive.Keep{Bytes: 1})
	ended, script := d.submit("#!/bin/sh\nends\n")
	d.do(&command.CancelJobs{Actor: ada, Jobs: []cluster.JobRef{{ID: ended, Index: cluster.NoIndex}}})
	d.after(2 * time.Hour)
	if d.has(script) {
		t.Fatal("not deleted")
	}
	f := &Filler{Replica: d.Replica, Archive: d.archive, Others: func() []string { return nil }}
	if err := f.fill(t.Context()); err != nil {
		t.Errorf("not complete: %v", err)
	}
	lost := cluster.Digest(sha256.Sum256([]byte("#!/bin/sh\nwaits\n")))
	d.submit("#!/bin/sh\nwaits\n")
	must(t, d.archive.Sync())
	if _, err := d.archive.Sweep(cluster.InstantOf(d.now), archive.Keep{Bytes: 1}, func(cluster.Digest) bool { return false }); err != nil || d.has(lost) {
		t.Fatal(err, d.has(lost))
	}
	if err := f.fill(t.Context()); err != nil || !f.Absent(lost) || f.Absent(script) {
		t.Errorf("%v; the script of a job that waits is absent: %t", err, f.Absent(lost))
	}
}
