package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// stage runs commands and shows them. The first thing that is not as it should
// be stays in err, and nothing follows it.
type stage struct {
	ctx context.Context
	c   *cluster.Cluster
	err error
}

func (s *stage) title(text string) { fmt.Printf("\n== %s\n", text) }

func (s *stage) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// act shows a command and what it says, and returns its stdout.
func (s *stage) act(program string, args ...string) string {
	if s.err != nil {
		return ""
	}
	fmt.Printf("$ %s %s\n", program, quoted(args))
	result, err := s.c.Run(s.ctx, program, args...)
	fmt.Print(result.Stdout, result.Stderr)
	if err != nil {
		s.fail("%s: %w", program, err)
	}
	return result.Stdout
}

func quoted(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a
		if strings.ContainsAny(a, " $") {
			words[i] = "'" + a + "'"
		}
	}
	return strings.Join(words, " ")
}

// submit submits and returns the job's id.
func (s *stage) submit(args ...string) string {
	fields := strings.Fields(s.act("gsubmit", args...))
	if len(fields) < 3 || fields[0] != "submitted" {
		s.fail("gsubmit %v did not say which job it submitted", args)
		return ""
	}
	return fields[2]
}

// output shows a file of the working directory and returns its text.
func (s *stage) output(name string) string {
	if s.err != nil {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(s.c.Work, name))
	if err != nil {
		s.fail("output: %w", err)
		return ""
	}
	fmt.Printf("$ cat %s\n%s", name, text)
	return string(text)
}

// job is what the demo looks at.
type job struct {
	State    string `json:"state"`
	Reason   string `json:"reason"`
	ExitCode int    `json:"exit_code"`
	Signal   int    `json:"exit_signal"`
	Promised bool   `json:"promised"`
}

// look asks for a job without showing it.
func (s *stage) look(id string) (job, error) {
	result, err := s.c.Run(s.ctx, "gctl", "show", "job", id, "--json")
	if err != nil || result.Exit != 0 {
		return job{}, fmt.Errorf("gctl show job %s: %s: %w", id, result.Stderr, err)
	}
	return firstJob(result.Stdout)
}

// firstJob reads the answer of gctl show job --json: an object that lists jobs.
func firstJob(text string) (job, error) {
	var answer struct {
		Jobs []job `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return job{}, fmt.Errorf("gctl show job: %w", err)
	}
	if len(answer.Jobs) == 0 {
		return job{}, fmt.Errorf("gctl show job: no job in %q", text)
	}
	return answer.Jobs[0], nil
}

// await waits until the job is in one of the states.
func (s *stage) await(id string, states ...string) job {
	var last job
	for s.err == nil {
		var err error
		if last, err = s.look(id); err != nil {
			s.fail("%w", err)
			break
		}
		for _, state := range states {
			if last.State == state {
				return last
			}
		}
		select {
		case <-s.ctx.Done():
			s.fail("job %s is %s (%s), not %s, and time is up", id, last.State, last.Reason, strings.Join(states, " or "))
		case <-time.After(100 * time.Millisecond):
		}
	}
	return last
}

// promised waits until the job's start is a promise.
func (s *stage) promised(id string) {
	for s.err == nil && !s.await(id, "PENDING").Promised {
		select {
		case <-s.ctx.Done():
			s.fail("job %s has no promise, and time is up", id)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ends waits for the job's end and checks it.
func (s *stage) ends(id, state string, code int) {
	if s.err != nil {
		return
	}
	end := s.await(id, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "DEADLINE")
	fmt.Printf("   job %s is %s, exit status %d, signal %d\n", id, end.State, end.ExitCode, end.Signal)
	if end.State != state || code >= 0 && end.ExitCode != code {
		s.fail("job %s should be %s with status %d", id, state, code)
	}
}
