package cli_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gqueue"
	"github.com/greylag/greylag/internal/cli/ui"
)

// until collects output up to a text; then it ends the writer.
type until struct {
	strings.Builder
	seen string
	end  context.CancelFunc
}

func (u *until) Write(data []byte) (int, error) {
	n, err := u.Builder.Write(data)
	if strings.Contains(u.String(), u.seen) {
		u.end()
	}
	return n, err
}

// TestStaleAgainAndAgain checks that gqueue --stale -i fetches lists, since a watch needs a leader.
func TestStaleAgainAndAgain(t *testing.T) {
	dir := t.TempDir()
	w, err := serve(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	w.pages = []*greylagv1.ListJobsResponse{{Jobs: []*greylagv1.Job{{Id: 4711, Ref: "4711", State: greylagv1.JobState_JOB_STATE_PENDING}}, AsOf: &greylagv1.AsOf{Controller: "ctl-2", Stale: true}}}
	t.Setenv("GREYLAG_CONFIG", filepath.Join(dir, "client.toml"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, warned := &until{seen: "4711", end: cancel}, &strings.Builder{}
	p := &ui.Process{Program: "gqueue", Args: []string{"--stale", "-i", "600", "-h", "-o", "%i"}, Stdout: out, Stderr: warned, Now: time.Now, Dial: dial}
	if status := gqueue.Run(ctx, p); status != int(ui.Interrupted) || !strings.Contains(out.String(), "4711") || !strings.Contains(warned.String(), "stale data: state of controller") {
		t.Errorf("exit status %d\n%s%s", status, out, warned)
	}
}
