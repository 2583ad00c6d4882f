package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// longJobPolicy ends the wait for a lost node after seconds, and lets urgent jobs preempt others at once.
const longJobPolicy = `cluster = "demo"
admins = [%s]
node_timeout = "15s"
kill_wait = "2s"
preempt_exempt = "0s"
default_qos = "standard"

[[qos]]
name = "urgent"
tier = 2
open = true
preempts = ["standard"]

[[qos]]
name = "standard"
tier = 1
open = true
preempt_mode = "requeue"
`

// longJob has a job with checkpoints lose its node, find a damaged checkpoint, and be preempted. Its result is that
// of an undisturbed job.
func (s *stage) longJob() {
	s.title("A job with checkpoints loses its node, its last checkpoint is damaged, and it is preempted")
	s.apply(longJobPolicy)
	if err := s.provideGctl(); err != nil {
		s.fail("copy gctl: %w", err)
		return
	}
	calm := s.submit("--wait", "train.sh")
	want := lastLine(s.output("train-" + calm + ".out"))
	id := s.submit("--env", "STOPS=1.6 3.9", "train.sh")
	out := "train-" + id + ".out"
	s.prints(out, "attempt 1 waits at step 6")
	lost := s.nodeOf(id)
	if s.err != nil {
		return
	}
	newest := filepath.Join(s.c.Work, "ckpt", id, "a1-0002", "state")
	fmt.Printf("   kill -9 gnoded of %s, and change a byte of %s\n", lost.Name, newest)
	if err := lost.Kill(); err != nil {
		s.fail("kill %s: %w", lost.Name, err)
	}
	s.changeByte(newest)
	s.prints(out, "attempt 3 waits at step 9")
	urgent := s.submit("--wait", "--qos=urgent", "--gpus-per-node=4", "gpu.sh")
	s.ends(urgent, "COMPLETED", 0)
	s.ends(id, "COMPLETED", 0)
	text := s.output(out)
	s.run("gctl", "checkpoint", "list", id)
	s.run("gctl", "acct", "-j", id, "-D", "-X", "-o", "JobID,State,NodeList,Elapsed")
	if lastLine(text) != want || !strings.HasPrefix(want, "result ") {
		s.fail("the disturbed job printed %q, the undisturbed one %q", lastLine(text), want)
	}
	if err := lost.Start(); err != nil {
		s.fail("start %s: %w", lost.Name, err)
	}
}

// admins returns the administrators of the demo.
func admins() string {
	list := `"root"`
	if self, err := user.Current(); err == nil {
		list += fmt.Sprintf(", %q", self.Username)
	}
	return list
}

// provideGctl copies gctl to the folder of the jobs, which they see. Jobs have a /tmp of their own, so that they
// do not see programs that were built below /tmp.
func (s *stage) provideGctl() error {
	dir := filepath.Join(s.c.Work, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := copyProgram("gctl", dir); err != nil {
		return err
	}
	return os.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// copyProgram copies a program to a folder.
func copyProgram(name, dir string) error {
	from, err := exec.LookPath(name)
	if err != nil {
		return err
	}
	program, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), program, 0o755)
}

// lastLine returns the last line of a text.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// prints waits until a file of the working directory has a line.
func (s *stage) prints(name, line string) {
	for s.err == nil {
		text, err := os.ReadFile(filepath.Join(s.c.Work, name))
		if err == nil && strings.Contains(string(text), line+"\n") {
			return
		}
		select {
		case <-s.ctx.Done():
			s.fail("timeout: no line %q in %s:\n%s", line, name, text)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// nodeOf returns the node of a running job.
func (s *stage) nodeOf(id string) *cluster.Node {
	j, err := s.fetch(id)
	if err == nil && len(j.Nodes) > 0 {
		for _, n := range s.c.Nodes() {
			if n.Name == j.Nodes[0].Node {
				return n
			}
		}
	}
	s.fail("find the node of job %s: %w", id, err)
	return nil
}

// changeByte changes a byte of a file.
func (s *stage) changeByte(path string) {
	text, err := os.ReadFile(path)
	if err == nil {
		text[0] ^= 1
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		s.fail("damage a checkpoint: %w", err)
	}
}
