package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
)

// TestStopIsWrittenIntoTheOutput checks that the reason of a stop is in the error output before the
// task's own words after SIGTERM, and that nothing is written through a link to another user's
// file.
func TestStopIsWrittenIntoTheOutput(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		secret := filepath.Join(n.dir, "secret")
		if err := os.WriteFile(secret, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for job, reason := range map[int]string{1: "TIME LIMIT", 2: "cancelled", 3: "", 4: "PREEMPTION"} {
			n.want(at(job, 1), "#!/bin/sh\ntrap 'echo bye; exit 3' TERM\necho up\nwhile :; do sleep 0.05; done\n", func(w *greylagv1.WantedTask) {
				w.WorkDir, w.Output, w.StopReason = n.home, "out-%j", wire.Enum[greylagv1.StopReason](reason)
				if job == 1 {
					w.Error = "err-%j"
				}
			})
			n.reach(at(job, 1), "started")
			waitFor(t, "it to run", func() bool { return n.read(fmt.Sprintf("out-%d", job)) == "up\n" })
		}
		if err := os.Remove(filepath.Join(n.home, "out-4")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(secret, filepath.Join(n.home, "out-4")); err != nil {
			t.Fatal(err)
		}
		n.change(func() {
			for _, task := range n.wanted {
				task.Stop = true
			}
		})
		for job := range 4 {
			n.settled(at(job+1, 1))
		}
		line := func(job int, due string) string {
			return fmt.Sprintf(`greylag: error: \*\*\* JOB %d ON n1 CANCELLED AT \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d%s \*\*\*\n`, job, due)
		}
		for name, want := range map[string]string{
			"err-1": line(1, " DUE TO TIME LIMIT"), "out-1": "up\nbye\n", "out-2": "up\n" + line(2, "") + "bye\n", "out-3": "up\nbye\n",
		} {
			// The shell prints Terminated for its sleep.
			if got := strings.ReplaceAll(n.read(name), "Terminated\n", ""); !regexp.MustCompile("^" + want + "$").MatchString(got) {
				t.Errorf("%s holds %q, want %s", name, got, want)
			}
		}
		if data, err := os.ReadFile(secret); os.Geteuid() == 0 && n.uid != 0 && (len(data) > 0 || err != nil) {
			t.Errorf("another user's file holds %q: %v", data, err)
		}
	})
}

// TestMemoryKillIsWrittenIntoTheOutput checks the line of slurmstepd.
func TestMemoryKillIsWrittenIntoTheOutput(t *testing.T) {
	n := newNode(t, "containerd", nil)
	n.want(at(1, 1), "#!/bin/sh\nx=$(yes | head -c 200000000)\n", func(w *greylagv1.WantedTask) {
		w.WorkDir, w.Output, w.Nodes[0].Memory = n.home, "out-%j", 32<<20
	})
	if end := n.settled(at(1, 1)); wire.Word(end.GetCause()) != "memory_killed" && !strings.Contains(end.GetMessage(), "--mem") {
		t.Fatal(end)
	}
	if out := n.read("out-1"); !strings.Contains(out, "oom_kill event in job 1.") {
		t.Errorf("%q", out)
	}
}
