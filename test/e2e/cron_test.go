package e2e

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// filterUser returns a user as whom a submission filter of this test may run: another one for root.
func filterUser() string {
	if os.Geteuid() == 0 {
		return "games"
	}
	return fmt.Sprint(os.Geteuid())
}

// TestCronAndFilterAfterALostLeader kills the leader before a recurring job is due. The next leader
// submits the job, once, and runs the submission filter of the site as its user.
func TestCronAndFilterAfterALostLeader(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	filter := filepath.Join(t.TempDir(), "filter")
	for dir := filepath.Dir(filter); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filter, []byte("#!/bin/sh\necho \"{\\\"job\\\": {\\\"comment\\\": \\\"filtered by $(id -u), groups $(id -G)\\\"}}\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	options := three()
	options.Raft += fmt.Sprintf("\n[submit]\nfilter = %q\nuser = %q\n", filter, filterUser())
	s := newSite(t, options)
	script := s.script("exit 0")
	out := s.run(alice, "gsubmit", small(script)...)
	if !strings.Contains(out.Stderr, "the submission filter of this site changed the job: comment: unset → filtered by ") {
		t.Errorf("gsubmit printed %q", out.Stderr)
	}
	s.ok(alice, "gctl", append([]string{"cron", "add", "minutely", "* * * * *"}, small(script)...)...)
	s.must(s.leader(ctx).Kill())
	e := s.cronEntry(ctx, func(e *greylagv1.CronEntry) bool { return e.LastJob > 0 || e.LastError != "" })
	if e.LastError != "" || e.User != "daemon" {
		t.Fatalf("the recurring job: %v", e)
	}
	job := s.await(ctx, e.LastJob, "COMPLETED")
	u, err := user.Lookup(filterUser())
	if err != nil {
		u, err = user.LookupId(filterUser())
	}
	s.must(err)
	if want := "filtered by " + u.Uid + ", groups " + u.Gid; job.User != "daemon" || os.Geteuid() == 0 && job.Comment != want {
		t.Errorf("the job of %s has the comment %q, want %q", job.User, job.Comment, want)
	}
	first := e.LastJob
	if e := s.cronEntry(ctx, func(e *greylagv1.CronEntry) bool { return e.LastJob > first }); e.LastJob != first+1 {
		t.Errorf("jobs %d and %d with others between them", first, e.LastJob)
	}
	s.ok(alice, "gctl", "cron", "remove", "minutely")
	for _, ctl := range s.Controllers() {
		if !ctl.Running() {
			s.must(ctl.Start())
		}
	}
	s.idle(ctx)
	s.audit(ctx)
}

// cronEntry waits until the only recurring job meets a condition.
func (s *site) cronEntry(ctx context.Context, ok func(*greylagv1.CronEntry) bool) (e *greylagv1.CronEntry) {
	s.t.Helper()
	s.until("the recurring job", func() (bool, error) {
		answer, err := s.client.Jobs().ListCron(ctx, &greylagv1.ListCronRequest{AllUsers: true})
		if err != nil {
			return false, err
		}
		if len(answer.Entries) != 1 {
			return false, fmt.Errorf("entries %v", answer)
		}
		e = answer.Entries[0]
		return ok(e), fmt.Errorf("entry %v", e)
	})
	return e
}
