package server_test

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestScriptThatTheArchiveLost: the state knows a script that the archive does not have, as after a
// restore. A node that needs it is refused, and a job that is submitted with it restores it.
func TestScriptThatTheArchiveLost(t *testing.T) {
	w := newWorld(t, options{})
	n := newNode(w, "n1")
	c := w.as(ann)
	submit := func() []byte {
		t.Helper()
		spec := job("work")
		spec.Request = &greylagv1.Request{GpusPerNode: 1}
		w.submit(c, spec)
		set := n.next()
		return set.GetTasks()[len(set.GetTasks())-1].GetScript()
	}
	n.next()
	digest := submit()
	must(t, w.all[0].store.Sync())
	never := func(cluster.Digest) bool { return false }
	swept, err := w.all[0].store.Sweep(cluster.InstantOf(time.Now()), archive.Keep{Age: time.Nanosecond}, never)
	if must(t, err); swept.Deleted == 0 {
		t.Fatal("nothing was deleted")
	}
	_, err = n.session.Fetch(t.Context(), &greylagv1.GetContentRequest{Digest: digest})
	if connect.CodeOf(err) != connect.CodeDataLoss || !strings.Contains(err.Error(), "submit the job again") {
		t.Fatalf("a script that is nowhere: %v", err)
	}
	submit()
	got, err := n.session.Fetch(t.Context(), &greylagv1.GetContentRequest{Digest: digest})
	if must(t, err); sha256.Sum256(got.GetContent()) != [32]byte(digest) {
		t.Errorf("fetched %q", got.GetContent())
	}
}
