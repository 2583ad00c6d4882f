package audit

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Runs is a folder into which the jobs' own scripts write that they ran.
type Runs struct{ dir string }

// NewRuns creates the folder's files, which every user's jobs may append to.
func NewRuns(dir string) (Runs, error) {
	r := Runs{dir}
	for _, name := range []string{r.begun(), r.clashes()} {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
		if err != nil {
			return r, err
		}
		if err := errors.Join(f.Chmod(0o666), f.Close()); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r Runs) begun() string   { return filepath.Join(r.dir, "runs") }
func (r Runs) clashes() string { return filepath.Join(r.dir, "clashes") }

// Script returns a batch script that first records its run and locks each of its GPUs as long as it
// runs, and then executes body.
func (r Runs) Script(body string) []byte {
	return fmt.Appendf(nil, `#!/bin/bash
echo "$GREYLAG_JOB_ID $GREYLAG_ATTEMPT $GREYLAG_NODEID $GREYLAG_NODENAME" >>%[1]s
for gpu in ${GREYLAG_JOB_GPUS//,/ }; do
  exec {lock}>>%[2]s/gpu-$gpu || continue
  flock -n $lock || echo "$GREYLAG_JOB_ID $gpu" >>%[3]s
done
%[4]s
`, r.begun(), r.dir, r.clashes(), body)
}

// Begun counts how often each "job attempt rank" began.
func (r Runs) Begun() (map[string]int, error) {
	f, err := os.Open(r.begun())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) == 4 {
			counts[strings.Join(fields[:3], " ")]++
		} else {
			return nil, fmt.Errorf("%s: cannot read %q", r.begun(), lines.Text())
		}
	}
	return counts, lines.Err()
}

// check returns every attempt that began twice and every GPU that was locked
// when its job began.
func (r Runs) check() error {
	begun, err := r.Begun()
	if err != nil {
		return err
	}
	var found []string
	for run, times := range begun {
		if times > 1 {
			found = append(found, fmt.Sprintf("job, attempt, rank %s began %d times", run, times))
		}
	}
	clashes, err := os.ReadFile(r.clashes())
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(clashes)) {
		found = append(found, "job and GPU "+strings.TrimSpace(line)+": another job had it")
	}
	return first(found)
}

// first makes an error of findings: their number, and the first few.
func first(found []string) error {
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	text := strings.Join(found[:min(len(found), 10)], "\n  ")
	return fmt.Errorf("%d findings:\n  %s", len(found), text)
}
