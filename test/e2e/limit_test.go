package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// TestContinuesAtTheTimeLimit has a job commit a checkpoint between SIGTERM at its time limit and SIGKILL: it counts, and
// the job continues from it.
func TestContinuesAtTheTimeLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: 1, CPUs: 4, Memory: "2GiB", Policy: quickKill()})
	id := s.gsubmit(tester, "--time=0:30", "--checkpoint-signal=B:USR1@15", "--requeue-at-limit", "--checkpoint", filepath.Join(s.Work, "ckpt"), s.script(`trap 'over=1' TERM
trap 'echo signal >>log' USR1
echo "attempt $GREYLAG_ATTEMPT at ${GREYLAG_RESUME_STEP:-0}" >>log
[ $GREYLAG_ATTEMPT = 1 ] || exit 9
while [ -z "${over:-}" ]; do sleep 0.1; done
dir=$(gctl checkpoint begin); echo 5 >"$dir/state"
sleep 3
gctl checkpoint commit "$dir" --step 5 && echo saved >>log`))
	job := s.ends(id, "FAILED")
	const want = "attempt 1 at 0\nsignal\nsaved\nattempt 2 at 5\n"
	if got := s.output("log"); got != want || job.ExitCode != 9 || job.RestartCauses.GetTimedOut() != 1 {
		t.Errorf("the job ended with %d and wrote %q, want %q; restarted for %v", job.ExitCode, got, want, job.RestartCauses)
	}
	s.audit(limited(t, hang))
}

// TestVictimIgnoresSIGTERM preempts a job that ignores SIGTERM: its checkpoint signal comes at once, SIGKILL after the
// grace time and kill_wait, and the urgent job starts within 10 s after that.
func TestVictimIgnoresSIGTERM(t *testing.T) {
	t.Parallel()
	policy := quickKill() + `preempt_exempt = "0s"
preempt_grace = "5s"
default_qos = "batch"
[[qos]]
name = "batch"
open = true
preempt_mode = "requeue"
[[qos]]
name = "high"
open = true
tier = 1
preempts = ["batch"]
`
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: 1, CPUs: 4, Memory: "2GiB", Policy: policy})
	victim := s.gsubmit(tester, "--gpus=1", "--time=60", "--checkpoint-signal=B:USR1@60", "--output=/dev/null", s.script(`trap '' TERM
trap 'echo save >>log' USR1
echo "attempt $GREYLAG_ATTEMPT" >>log
[ $GREYLAG_ATTEMPT = 1 ] || exit 9
while :; do sleep 0.1; done`))
	s.until("the victim runs", func() (bool, error) { return s.exists("log"), nil })
	asked := time.Now()
	urgent := s.ends(s.gsubmit(tester, "--gpus=1", "--qos=high", s.script("exit 9")), "FAILED")
	waited := urgent.Started.AsTime().Sub(asked)
	if most := 5*time.Second + 10*time.Second + 10*time.Second; waited < 15*time.Second || waited > most {
		t.Errorf("the urgent job started after %s, want 15 s to %s", waited, most)
	}
	job := s.ends(victim, "FAILED")
	if got := s.output("log"); got != "attempt 1\nsave\nattempt 2\n" || job.ExitCode != 9 || job.RestartCauses.GetPreempted() != 1 {
		t.Errorf("the victim ended with %d and wrote %q, restarted for %v", job.ExitCode, got, job.RestartCauses)
	}
	if history := s.ok(tester, "gctl", "history", fmt.Sprint(victim)); !strings.Contains(history, "preempted for job "+fmt.Sprint(urgent.Id)) {
		t.Errorf("history of the victim:\n%s", history)
	}
	s.audit(limited(t, hang))
}
