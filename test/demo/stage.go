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

// stage runs commands and prints them. It keeps the first error, after which it does nothing.
type stage struct {
	ctx context.Context
	c   *cluster.Cluster
	err error

	cloud string // state directory of the cloud
}

func (s *stage) title(text string) { fmt.Printf("\n== %s\n", text) }

func (s *stage) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// run prints and executes a command, prints its output, and returns its standard output.
func (s *stage) run(program string, args ...string) string {
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

// submit submits a job and returns its ID.
func (s *stage) submit(args ...string) string {
	fields := strings.Fields(s.run("gsubmit", args...))
	if len(fields) < 3 || fields[0] != "submitted" {
		s.fail("gsubmit %v printed no job ID", args)
		return ""
	}
	return fields[2]
}

// output prints a file of the working directory and returns its text.
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

// job holds the fields that the demo checks.
type job struct {
	State    string `json:"state"`
	Reason   string `json:"reason"`
	ExitCode int    `json:"exit_code"`
	Signal   int    `json:"exit_signal"`
	Promised bool   `json:"promised"`
	Nodes    []struct {
		Node string `json:"node"`
	} `json:"nodes"`
}

// fetch returns a job without printing the command.
func (s *stage) fetch(id string) (job, error) {
	result, err := s.c.Run(s.ctx, "gctl", "show", "job", id, "--json")
	if err != nil || result.Exit != 0 {
		return job{}, fmt.Errorf("gctl show job %s: %s: %w", id, result.Stderr, err)
	}
	return firstJob(result.Stdout)
}

// firstJob returns the job of the output of gctl show job --json.
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
		if last, err = s.fetch(id); err != nil {
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
			s.fail("timeout: job %s is %s (%s), want %s", id, last.State, last.Reason, strings.Join(states, " or "))
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
			s.fail("timeout: job %s has no promise", id)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ends waits for the end of a job and checks its state.
func (s *stage) ends(id, state string, code int) {
	if s.err != nil {
		return
	}
	end := s.await(id, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "DEADLINE")
	fmt.Printf("   job %s is %s, exit status %d, signal %d\n", id, end.State, end.ExitCode, end.Signal)
	if end.State != state || code >= 0 && end.ExitCode != code {
		s.fail("job %s: want %s with status %d", id, state, code)
	}
}
