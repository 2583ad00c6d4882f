package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// TestQuietJobEnds has a job that waits for nothing, which gets a warning and ends, and one that works on the CPU without
// output and without its GPU: it gets another warning, and runs on.
func TestQuietJobEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: 2, CPUs: 4, Memory: "2GiB", Policy: quickKill() + "quiet_warn = \"20s\"\nquiet_end = \"40s\"\n"})
	node := s.Nodes()[0]
	file := filepath.Join(filepath.Dir(node.Textfile()), "gnoded.toml")
	config, err := os.ReadFile(file)
	s.must(err)
	s.must(os.WriteFile(file, append(config, "[poll]\nmeter = \"1s\"\n"...), 0o644))
	s.must(node.Stop())
	s.must(node.Start())
	spins := s.gsubmit(tester, "--gpus=1", "--time=60", s.script("while [ ! -e stop ]; do :; done; exit 9"))
	waits := s.gsubmit(tester, "--gpus=1", "--time=60", s.script("trap '' USR1; sleep 3000"))
	shows := func(id uint64, want string) func() (bool, error) {
		return func() (bool, error) {
			return strings.Contains(s.ok(tester, "gctl", "show", "job", fmt.Sprint(id)), want), nil
		}
	}
	s.until("the job that waits is warned about", shows(waits, "does nothing: no output"))
	s.until("the idle GPU of the other is noticed", shows(spins, "idle GPUs: 1 of 1"))
	job := s.ends(waits, "CANCELLED")
	if want := "ended by the cluster (quiet_end)"; !strings.Contains(job.Detail, want) {
		t.Errorf("the job ended: %q, want %q", job.Detail, want)
	}
	s.must(os.WriteFile(filepath.Join(s.Work, "stop"), nil, 0o666))
	job = s.ends(spins, "FAILED")
	if job.ExitCode != 9 || job.IdleGpus.GetGpuMs() < 20_000 {
		t.Errorf("the job that works ended with %d, its GPU was idle for %v", job.ExitCode, job.IdleGpus)
	}
	s.audit(limited(t, hang))
}
