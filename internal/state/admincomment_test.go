package state

import (
	"bytes"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestAdminComment sets admin comments of a pending and an ended job: the archive gets the ended one
// again, under its number, and a snapshot holds both.
func TestAdminComment(t *testing.T) {
	x := newScript(t)
	s := x.s
	for _, line := range []string{"submit ada", "submit ada", "cancel ada 1"} {
		x.run(line)
	}
	s.Effects()
	x.run("admincomment root 1 2 text=gpu:12%")
	effects := s.Effects()
	if len(effects.Amended) != 1 || len(effects.Finished) != 0 || effects.Amended[0].Seq != 1 {
		t.Fatalf("amended %+v, finished %+v", effects.Amended, effects.Finished)
	}
	if j, err := command.DecodeJob(effects.Amended[0].Record); err != nil || j.ID != 1 || j.AdminComment != "gpu:12%" || j.State != cluster.Cancelled {
		t.Errorf("archived %+v, %v", j, err)
	}
	for _, id := range []cluster.JobID{1, 2} {
		if j, _ := s.View().Job(id); j.AdminComment != "gpu:12%" {
			t.Errorf("job %d: %q", id, j.AdminComment)
		}
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	again, err := decode(bytes.NewReader(encode(t, s)), s.limits)
	if err != nil || again.Digest() != s.Digest() {
		t.Errorf("after a snapshot: digest %x, want %x: %v", again.Digest(), s.Digest(), err)
	}
}

// TestAdminCommentRefused checks who may set admin comments, and of what jobs.
func TestAdminCommentRefused(t *testing.T) {
	x := newScript(t)
	x.s.limits.tail = 1
	for _, line := range []string{"submit ada", "submit ada", "cancel ada 1", "cancel ada 2"} {
		x.run(line)
	}
	for line, want := range map[string]string{
		"admincomment ada 2 text=x": "requires role operator",
		"admincomment root 2 text=" + strings.Repeat("x", maxAdminComment+1): "has 16385 bytes, at most 16384",
		"admincomment root 1 text=x":                                         "job 1 is not active and not one of the last 1 ended jobs",
	} {
		if got := x.run(line); !strings.Contains(got, want) {
			t.Errorf("%.40s: %q, want %q", line, got, want)
		}
	}
}
