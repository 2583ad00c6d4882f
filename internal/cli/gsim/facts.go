package gsim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/pkg/cluster"
)

// facts returns a summary as text.
func facts(s *sim.Summary, under *settings) [][2]string {
	out := [][2]string{
		{"policy", under.String()},
		{"jobs", fmt.Sprintf("%d, %d ended, %d of them waited, %d refused, %d never started", s.Jobs, s.Ended, s.Waited, s.Refused, s.Never)},
		{"utilisation", fmt.Sprintf("%.4f of %d", s.Utilisation, s.Capacity)},
		{"makespan", fmt.Sprintf("%.0f s", s.Makespan)},
		{"wait", fmt.Sprintf("mean %.1f s, p50 %.0f, p90 %.0f, p99 %.0f, max %.0f", s.Wait.Mean, s.Wait.P50, s.Wait.P90, s.Wait.P99, s.Wait.Max)},
		{"bounded slowdown", fmt.Sprintf("%.4f", s.Slowdown)},
		{"promises", promises(&s.Promises)},
		{"planned starts", fmt.Sprintf("%.0f s off on average", s.PlanError)},
		{"fairness", fmt.Sprintf("%d users, entitlement error %.4f, Jain index %.4f", s.Fairness.Users, s.Fairness.EntitlementError, s.Fairness.Jain)},
		{"worst wait", fmt.Sprintf("user %s, job %s, %.0f s", s.Fairness.WorstUser.User, s.Fairness.WorstUser.Job, s.Fairness.WorstUser.Wait)},
	}
	for _, w := range s.Fairness.WorstBySize {
		out = append(out, [2]string{fmt.Sprintf("size %d-%d", w.From, w.To), fmt.Sprintf("%d jobs, mean wait %.0f s, max %.0f", w.Jobs, w.Mean, w.Max)})
	}
	if p := s.Placement; p.GPUJobs > 0 {
		out = append(out,
			[2]string{"one NVLink domain", fmt.Sprintf("%.1f %% of the jobs that fit into one", 100*p.OneDomain)},
			[2]string{"one leaf", fmt.Sprintf("%.1f %% of %d jobs on several nodes", 100*p.OneLeaf, p.WideJobs)},
			[2]string{"stranded GPUs", fmt.Sprintf("%.1f on average while jobs are pending", p.Stranded)},
		)
	}
	if p := s.Pass; p.Passes > 0 {
		out = append(out, [2]string{"passes", fmt.Sprintf("%d, %d of them planned all jobs again; p50 %.3f ms, p99 %.3f, max %.3f", p.Passes, p.Replanned, p.P50, p.P99, p.Max)})
	}
	if s.Faults != nil {
		out = append(out, faultFacts(s.Faults)...)
	}
	if c := s.Cloud; c != nil {
		out = append(out,
			[2]string{"cloud", fmt.Sprintf("%.1f node-hours, %s %s", c.Hours, cluster.FormatMoney(c.Cost), c.Currency)},
			[2]string{"leases", fmt.Sprintf("%d, %d nodes joined; %d requests, %d refused", c.Leases, c.Joined, c.Launches, c.Refused)},
			[2]string{"on leased nodes", fmt.Sprintf("%s; %d nodes reclaimed, %s", ui.Count(int64(c.Attempts), "attempt"), c.Reclaims, ui.Count(int64(c.Restarts), "restart"))},
		)
	}
	if s.Stale > 0 {
		out = append(out, [2]string{"stale starts", fmt.Sprint(s.Stale)})
	}
	return out
}

func promises(p *sim.Promises) string {
	text := fmt.Sprintf("%d made to jobs that could not start when submitted, %d kept, %d broken", p.Made, p.Kept, p.Broken)
	causes := slices.Sorted(maps.Keys(p.Causes))
	slices.SortStableFunc(causes, func(a, b string) int { return cmp.Compare(p.Causes[b], p.Causes[a]) })
	var listed []string
	for _, c := range causes[:min(len(causes), 5)] {
		listed = append(listed, fmt.Sprintf("%d: %s", p.Causes[c], c))
	}
	if len(listed) > 0 {
		text += " (" + strings.Join(listed, "; ") + ")"
	}
	return text
}
