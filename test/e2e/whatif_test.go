package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// forecasts is the output of gsim what-if --json.
type forecasts struct {
	Now  time.Time `json:"now"`
	Jobs []struct {
		Job   string     `json:"job"`
		After *time.Time `json:"after"`
		Why   string     `json:"why"`
	} `json:"jobs"`
}

// TestWhatIf saves a live cluster and computes when its jobs would start under changes. Its two
// nodes of four GPUs belong to one job for fifty minutes; two jobs are pending, the first for both
// nodes.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: 4, CPUs: 16, Memory: "8GiB", Tmpfs: true, Policy: quickKill()})
	short := s.script("[ -e begun ] && sleep 300; touch begun")
	all := []string{"-N2", "--gpus-per-node=4", "--job-name=train"}
	known := s.gsubmit(tester, append(all, "--time=30", short)...)
	s.await(ctx, known, "COMPLETED")
	runs := s.gsubmit(tester, append(all, "--time=50", s.script("sleep 1000"))...)
	s.await(ctx, runs, "RUNNING")
	wide := s.gsubmit(tester, append(all, "--time=30", short)...)
	last := s.gsubmit(tester, "--gpus-per-node=4", "--time=10", s.script("true"))
	s.until("both have a planned start", func() (bool, error) {
		a, err := s.get(ctx, wide)
		if err != nil {
			return false, err
		}
		b, err := s.get(ctx, last)
		return a.GetPlanned() != nil && b.GetPlanned() != nil, err
	})
	saved, policy := filepath.Join(s.Work, "c.snap"), filepath.Join(s.Work, "policy.toml")
	s.ok(tester, "gctl", "cluster", "snapshot", "-o", saved)
	s.must(os.WriteFile(policy, []byte(quickKill()+"[[partition]]\nname = \"main\"\nnodes = [\"ALL\"]\ndefault = true\ndown = true\n"), 0o600))
	never := math.Inf(1)
	self, err := user.Current()
	s.must(err)
	for _, x := range []struct {
		minutes []float64 // until the start of wide, last, and jobs that are added
		changes []string
	}{
		{[]float64{50, 80}, nil},
		{[]float64{50, 50}, []string{"--runtimes", "expected"}},
		{[]float64{0, 0}, []string{"--add-nodes", "3:h100"}},
		{[]float64{never, 0}, []string{"--remove-node", s.Node(1).Name}},
		{[]float64{50, 80, 80}, []string{"--submit", "--gpus-per-node=3 -t 10", "--user", self.Username}},
		{[]float64{never, never}, []string{"--policy", policy}},
	} {
		s.whatIf(saved, x.changes, x.minutes...)
	}
	if got := s.ok(tester, "gctl", "plan", "--svg", "-"); !strings.HasPrefix(got, "<svg") || !strings.Contains(got, ">8 GPUs<") {
		t.Errorf("gctl plan --svg: %.200s", got)
	}
	if got := s.ok(tester, "gqueue", "--start", "-h", "-o", "%i %X %Y", "-j", fmt.Sprint(wide)); !strings.HasPrefix(got, fmt.Sprintf("%d 20", wide)) || !strings.Contains(got, s.Node(1).Name[:2]) {
		t.Errorf("gqueue --start: %s", got)
	}
	s.ok(tester, "gcancel", fmt.Sprint(runs), fmt.Sprint(wide), fmt.Sprint(last))
	s.idle(ctx)
}

// whatIf checks that each pending job starts that many minutes after the snapshot, within two.
func (s *site) whatIf(saved string, options []string, minutes ...float64) {
	s.t.Helper()
	var got forecasts
	s.must(json.Unmarshal([]byte(s.ok(tester, "gsim", append([]string{"what-if", saved, "--check", "--json"}, options...)...)), &got))
	waits := got.Jobs
	if len(waits) > len(minutes) { // of a lost node's job, which is pending again
		waits = waits[len(waits)-len(minutes):]
	}
	if len(waits) != len(minutes) {
		s.t.Errorf("%v: %+v", options, got)
		return
	}
	for i, want := range minutes {
		after := math.Inf(1)
		if at := waits[i].After; at != nil {
			after = at.Sub(got.Now).Minutes()
		}
		if after != want && math.Abs(after-want) > 2 {
			s.t.Errorf("%v: job %q starts after %.1f minutes, want %.0f (%s)", options, waits[i].Job, after, want, waits[i].Why)
		}
	}
}
