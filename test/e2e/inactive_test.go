package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// TestInactiveJobEnds has a job that sleeps, which gets a warning and ends, and one that writes files, without output
// and without its GPU: it gets another warning, and runs on.
func TestInactiveJobEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: 2, CPUs: 4, Memory: "2GiB", Policy: quickKill() + "inactive_warning = \"6s\"\ninactive_limit = \"12s\"\n"})
	node := s.Nodes()[0]
	file := filepath.Join(filepath.Dir(node.Textfile()), "gnoded.toml")
	config, err := os.ReadFile(file)
	s.must(err)
	s.must(os.WriteFile(file, append(config, "[poll]\nmeter = \"1s\"\n"...), 0o644))
	s.must(node.Stop())
	s.must(node.Start())
	spins := s.gsubmit(tester, "--gpus=1", "--time=60", s.script("while [ ! -e stop ]; do head -c 100000 /dev/zero >>file; rm file; done; exit 9"))
	waits := s.gsubmit(tester, "--gpus=1", "--time=60", s.script("trap '' USR1; sleep 3000"))
	shows := func(id uint64, want string) func() (bool, error) {
		return func() (bool, error) {
			return strings.Contains(s.ok(tester, "gctl", "show", "job", fmt.Sprint(id)), want), nil
		}
	}
	s.until("the job that waits is warned about", shows(waits, "inactive: no output"))
	s.until("the idle GPU of the other is noticed", shows(spins, "idle GPUs: 1 of 1"))
	job := s.ends(waits, "TIMEOUT")
	if want := "inactive for 0:12 (inactive_limit of the policy): no output"; job.Reason != greylagv1.Reason_REASON_INACTIVE_LIMIT || !strings.HasPrefix(job.Detail, want) {
		t.Errorf("the job ended: %s, %q, want InactiveLimit, %q", job.Reason, job.Detail, want)
	}
	s.must(os.WriteFile(filepath.Join(s.Work, "stop"), nil, 0o666))
	job = s.ends(spins, "FAILED")
	if job.ExitCode != 9 || job.IdleGpus.GetGpuMs() < 6_000 {
		t.Errorf("the job that works ended with %d, its GPU was idle for %v", job.ExitCode, job.IdleGpus)
	}
	s.audit(limited(t, hang))
}
