package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// with returns the site for one subtest.
func (s *site) with(t *testing.T) *site {
	copied := *s
	copied.t = t
	return &copied
}

// account is the user who types a command: root stands for the user that runs the tests.
type account uint32

const (
	tester account = 0
	alice  account = 1 // "daemon" in every /etc/passwd
	bob    account = 2 // "bin"
)

// run runs a command as a user would.
func (s *site) run(as account, program string, args ...string) cluster.Result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), hang)
	defer cancel()
	cmd := s.Command(ctx, program, args...)
	if as != tester {
		cluster.As(cmd, uint32(as), uint32(as))
	}
	return s.finish(cmd)
}

func (s *site) finish(cmd *exec.Cmd) cluster.Result {
	s.t.Helper()
	result, err := cluster.Finish(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	return result
}

// ok requires status 0 and returns the command's output.
func (s *site) ok(as account, program string, args ...string) string {
	s.t.Helper()
	result := s.run(as, program, args...)
	if result.Exit != 0 {
		s.t.Fatalf("%s %s: exit status %d\n%s%s", program, strings.Join(args, " "), result.Exit, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// script writes a batch script that records its run, and returns its path.
func (s *site) script(body string) string {
	s.t.Helper()
	f, err := os.CreateTemp(s.Work, "*.sh")
	s.must(err)
	_, err = f.Write(s.runs.Script(body))
	s.must(err)
	s.must(f.Chmod(0o755))
	s.must(f.Close())
	return f.Name()
}

// small are the options of a job with minimal needs.
func small(args ...string) []string {
	return append([]string{"--parsable", "--qos=" + realQOS, "--mem=32M", "--time=5"}, args...)
}

// gsubmit submits and returns the ID.
func (s *site) gsubmit(as account, args ...string) uint64 {
	s.t.Helper()
	out := s.ok(as, "gsubmit", small(args...)...)
	id, err := strconv.ParseUint(strings.TrimSpace(out), 10, 64)
	if err != nil {
		s.t.Fatalf("gsubmit --parsable printed %q", out)
	}
	return id
}

// ends waits for the end of a job and checks its state.
func (s *site) ends(id uint64, state string) *greylagv1.Job {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), hang)
	defer cancel()
	return s.await(ctx, id, state)
}

// output returns the content of a file in the working directory.
func (s *site) output(format string, args ...any) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Work, fmt.Sprintf(format, args...)))
	s.must(err)
	return string(text)
}

// until waits for a condition.
func (s *site) until(what string, done func() (bool, error)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), hang)
	defer cancel()
	s.must(cluster.Until(ctx, what, done))
}

// exists reports whether a file exists.
func (s *site) exists(name string) bool {
	_, err := os.Stat(filepath.Join(s.Work, name))
	return err == nil
}
