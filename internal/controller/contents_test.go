package controller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// backedUp returns a replica with jobs whose scripts are "one" and "two"; the first job has
// ended, and its archive.
func backedUp(t *testing.T) (*Replica, *archive.Archive) {
	t.Helper()
	a, err := archive.Open(t.TempDir(), archive.Options{Pause: time.Millisecond})
	must(t, err)
	t.Cleanup(func() { a.Close() })
	r := NewReplica(a, slog.New(slog.DiscardHandler))
	do := func(index uint64, at cluster.Instant, c command.Command) {
		t.Helper()
		if refusal, refused := r.Apply(index, int64(at), [][]byte{command.Encode(c)})[0].(*command.Refusal); refused {
			t.Fatal(refusal)
		}
	}
	now := cluster.Instant(time.Hour)
	do(1, now, &command.Init{ClusterID: "test", Policy: cluster.DefaultPolicy()})
	for i, text := range []string{"one", "two"} {
		spec := cluster.JobSpec{Name: "j", Owner: ada.Identity, WorkDir: "/", TimeLimit: time.Hour, Script: sha256.Sum256([]byte(text)),
			Request: cluster.Request{Nodes: 1, CPUsPerTask: 1, TasksPerNode: 1}}
		do(uint64(2+i), now, &command.SubmitJobs{Actor: ada, Jobs: []command.Submission{{Spec: spec}}, Blobs: [][]byte{[]byte(text)}})
	}
	do(4, now.Add(2*time.Hour), &command.CancelJobs{Actor: ada, Jobs: []cluster.JobRef{{ID: 1, Index: cluster.NoIndex}}})
	do(5, now.Add(4*time.Hour), &command.Tick{}) // the state drops script one
	must(t, a.Sync())
	return r, a
}

// restoredFrom returns a replica restored from a backup, and its archive.
func restoredFrom(t *testing.T, image, contents []byte, history bool) (*Replica, *archive.Archive) {
	t.Helper()
	a, err := archive.Open(t.TempDir(), archive.Options{Pause: time.Millisecond})
	must(t, err)
	t.Cleanup(func() { a.Close() })
	r := NewReplica(a, slog.New(slog.DiscardHandler))
	must(t, r.Restore(bytes.NewReader(image)))
	must(t, LoadContents(bytes.NewReader(contents), a))
	r.Apply(100, int64(r.View().Now()), [][]byte{command.Encode(&command.Restored{History: history})})
	return r, a
}

// TestBackupHoldsWhatJobsNeed checks that a backup without history has the scripts of active jobs,
// and one with history all scripts and the journals; then the archive lacks nothing.
func TestBackupHoldsWhatJobsNeed(t *testing.T) {
	r, a := backedUp(t)
	var image bytes.Buffer
	must(t, r.View().Encode(&image))
	for _, history := range []bool{false, true} {
		var contents bytes.Buffer
		missing, err := SaveContents(&contents, r.View(), a, history)
		if err != nil || missing != 0 {
			t.Fatal(missing, err)
		}
		restored, into := restoredFrom(t, image.Bytes(), contents.Bytes(), history)
		for text, want := range map[string]bool{"one": history, "two": true} {
			if _, found, err := into.Blob(sha256.Sum256([]byte(text))); err != nil || found != want {
				t.Errorf("history %t: script %s found %t, %v", history, text, found, err)
			}
		}
		rows, err := into.Rows(archive.AuditJournal, 1, 100)
		seq, _ := restored.View().Audited()
		if err != nil || len(rows) == 0 || (rows[0].Seq == 1) != history || rows[len(rows)-1].Seq != seq {
			t.Errorf("history %t: %d rows of the audit journal, %v", history, len(rows), err)
		}
		filler := &Filler{Replica: restored, Archive: into, Peers: sister{}, Others: func() []string { return nil }}
		must(t, filler.fill(context.Background()))
	}
	for cut := range 20 {
		if err := LoadContents(bytes.NewReader(make([]byte, cut+1)), a); err == nil {
			t.Errorf("%d zero bytes were loaded", cut+1)
		}
	}
}

// TestMissingScriptIsNamedOnce checks that a script that a job needs and no controller has is
// absent, that the archive counts as complete, and that neither this nor a silent controller is
// logged twice.
func TestMissingScriptIsNamedOnce(t *testing.T) {
	r, a := backedUp(t)
	var image bytes.Buffer
	must(t, r.View().Encode(&image))
	restored, into := restoredFrom(t, image.Bytes(), nil, false)
	script := cluster.Digest(sha256.Sum256([]byte("two")))
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	peers := &away{sister: sister{a, nil}, err: errors.New("does not answer")}
	f := &Filler{Replica: restored, Archive: into, Peers: peers, Others: func() []string { return []string{"a"} }, Logger: log}
	for range 3 {
		if err := f.try(t.Context(), log); err == nil {
			t.Fatal("complete without an answer")
		}
	}
	if n := strings.Count(text.String(), "level=WARN"); n != 1 || f.Complete() || f.Absent(script) {
		t.Errorf("logged %q, complete %t, absent %t", text.String(), f.Complete(), f.Absent(script))
	}
	peers.err, peers.empty = nil, true
	text.Reset()
	for range 3 {
		must(t, f.try(t.Context(), log))
	}
	if n := strings.Count(text.String(), "level=WARN"); n != 1 || !f.Complete() || !f.Absent(script) {
		t.Errorf("logged %q, complete %t, absent %t", text.String(), f.Complete(), f.Absent(script))
	}
}

// away is a peer that may not answer, or may have no contents.
type away struct {
	sister
	err   error
	empty bool
}

func (a *away) Blobs(ctx context.Context, addr string, digests []cluster.Digest) ([][]byte, error) {
	if a.err != nil || a.empty {
		return make([][]byte, len(digests)), a.err
	}
	return a.sister.Blobs(ctx, addr, digests)
}
