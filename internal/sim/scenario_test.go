package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/sim/oracle"
	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/internal/sim/trace/tracetest"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

// TestScenarios replays the workloads of testdata: a line with the machine and the policy, a table
// of jobs, and after ---- the result of each, once per way to plan.
func TestScenarios(t *testing.T) { scenario.Cases(t, "testdata/*.txt", played) }

// played replays a scenario and writes the results.
func played(t *testing.T, input string) string {
	first, table, _ := strings.Cut(input, "\n")
	var nodes, gpus, depth int
	if _, err := fmt.Sscanf(first, "nodes=%d gpus=%d depth=%d", &nodes, &gpus, &depth); err != nil {
		t.Fatal(first, err)
	}
	fleet, err := Uniform(nodes, gpus)
	if err != nil {
		t.Fatal(err)
	}
	log, err := trace.Read(strings.NewReader(table), trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	policy := plain()
	policy.Scheduling.Depth = int32(depth)
	out, err := Replay(fleet, policy, Workload(log, fleet, false), Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := WriteCSV(&b, out.Results); err != nil {
		t.Fatal(err)
	}
	s := Summarise(out)
	fmt.Fprintf(&b, "promises %d kept, %d broken; utilisation %.3f; %.2f in one domain; %d stale\n", s.Promises.Kept, s.Promises.Broken, s.Utilisation, s.Placement.OneDomain, s.Stale)
	return b.String()
}

// FuzzReplay draws logs and checks the properties of every replay: all jobs run for their run time,
// no processor is allocated twice, all promises are kept, and the mean wait is at most that of
// first come, first served.
func FuzzReplay(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 9))
		procs := int32(1 + r.IntN(16))
		log, fleet := tracetest.Draw(r, 1+r.IntN(60), procs), Flat(procs)
		out, err := Replay(fleet, plain(), Workload(log, fleet, false), Options{Check: true})
		if err != nil {
			t.Fatal(err)
		}
		s := Summarise(out)
		if s.Ended != len(log.Jobs) || s.Promises.Broken > 0 || s.Stale > 0 {
			t.Fatalf("%d of %d jobs ended, promises broken: %v, %d stale starts", s.Ended, len(log.Jobs), s.Promises.Causes, s.Stale)
		}
		fits(t, out, procs)
	})
}

// TestBackfillShortensTheWait: over many logs the mean wait is shorter than with first come, first
// served. One log may be an exception: a backfilled job stays when the jobs that others wait for
// end early.
func TestBackfillShortensTheWait(t *testing.T) {
	var backfill, inTurn float64
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 9))
		procs := int32(1 + r.IntN(16))
		log, fleet := tracetest.Draw(r, 1+r.IntN(60), procs), Flat(procs)
		fast, err := Replay(fleet, plain(), Workload(log, fleet, false), Options{})
		if err != nil {
			t.Fatal(err)
		}
		slow, err := ReplayPublished(log, procs, oracle.FCFS)
		if err != nil {
			t.Fatal(err)
		}
		backfill += Summarise(fast).Wait.Mean
		inTurn += Summarise(slow).Wait.Mean
	}
	if t.Logf("mean waits: %.0f s, first come first served %.0f s", backfill/20, inTurn/20); backfill > inTurn*3/4 {
		t.Errorf("mean waits of 20 logs add up to %.0f s, first come first served to %.0f s", backfill, inTurn)
	}
}

// fits counts the processors in use at each start.
func fits(t *testing.T, out *Outcome, procs int32) {
	for i := range out.Results {
		at, used := out.Results[i].Start, int64(0)
		for k := range out.Results {
			if r := &out.Results[k]; r.Start <= at && at < r.End {
				used += r.Job.size()
			}
		}
		if r := &out.Results[i]; used > int64(procs) || r.End.Sub(r.Start) != r.Job.Run || r.Start < r.Job.Submit {
			t.Fatalf("%d of %d processors in use at the start of %+v", used, procs, r)
		}
	}
}

// TestReplayIsDeterministic: the same input gives the same lines.
func TestReplayIsDeterministic(t *testing.T) {
	fleet, err := Uniform(4, 8)
	if err != nil {
		t.Fatal(err)
	}
	log := tracetest.Draw(rand.New(rand.NewPCG(1, 9)), 120, 20)
	var texts [2]strings.Builder
	for i := range texts {
		policy := cluster.DefaultPolicy()
		out, err := Replay(fleet, &policy, Workload(log, fleet, true), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteCSV(&texts[i], out.Results); err != nil {
			t.Fatal(err)
		}
	}
	if texts[0].String() != texts[1].String() {
		t.Error("two replays differ")
	}
}

// TestPassIsMeasured: every figure of a small cluster is set.
func TestPassIsMeasured(t *testing.T) {
	policy := cluster.DefaultPolicy()
	m, err := MeasurePass(PassSize{Nodes: 16, GPUsPerNode: 8, Pending: 50, Seed: 1}, &policy, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if m.Full.P50 <= 0 || m.Event.P50 <= 0 || m.Event.P99 < m.Event.P50 || m.EventPasses < minEvents || m.Heap <= 0 || m.Planned != 50 || m.Started == 0 {
		t.Errorf("%+v", m)
	}
	for _, s := range []PassSize{{}, {Nodes: 1, GPUsPerNode: 0}, {Nodes: 1, GPUsPerNode: 8, Pending: -1}, {Nodes: 1 << 30, GPUsPerNode: 8}} {
		if _, err := MeasurePass(s, &policy, func(string) {}); err == nil {
			t.Errorf("%+v was measured", s)
		}
	}
}

// TestPicture: every bar is within the picture, for any workload.
func TestPicture(t *testing.T) {
	fleet := Flat(10)
	log := tracetest.Draw(rand.New(rand.NewPCG(2, 9)), 200, 10)
	out, err := ReplayPublished(log, 10, oracle.EASY)
	if err != nil {
		t.Fatal(err)
	}
	out.Machine = fleet
	var b strings.Builder
	if err := WriteSVG(&b, out, "a <b> & c"); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if !strings.Contains(text, "a &lt;b> &amp; c") || strings.Count(text, "<path fill=\"hsl") < 2 || !strings.HasSuffix(text, "</svg>\n") {
		t.Error(text[:400])
	}
}
