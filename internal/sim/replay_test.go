package sim

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/pkg/cluster"
)

func readLog(t testing.TB, name string, o trace.Options) *trace.Trace {
	dir := os.Getenv("GREYLAG_TRACES")
	if dir == "" {
		t.Skip("needs GREYLAG_TRACES, the folder with traces/ and oracle/")
	}
	if _, err := os.Stat(filepath.Join(dir, "traces")); err == nil {
		dir = filepath.Join(dir, "traces")
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log, err := trace.Read(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// plain is the default policy in order of arrival, with promises for all jobs.
func plain() *cluster.Policy {
	p := cluster.DefaultPolicy()
	p.Scheduling.Weights = cluster.Weights{}
	p.Scheduling.PromiseHorizon = cluster.Unlimited
	p.KillWait = 0
	return &p
}

// TestProductionIsNearPublished replays a log with the production scheduler, which handles the
// events of an instant together, and compares the mean wait with that of the published order of
// events.
func TestProductionIsNearPublished(t *testing.T) {
	log := readLog(t, "KTH-SP2.sc15.swf.gz", trace.Options{})
	fleet := Flat(100)
	out, err := Replay(fleet, plain(), Workload(log, fleet, false), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := Summarise(out)
	t.Logf("%+v", s)
	if s.Ended != 28_481 || s.Promises.Broken != 0 || s.Stale != 0 {
		t.Errorf("%d jobs ended, %d promises broken (%v), %d stale starts", s.Ended, s.Promises.Broken, s.Promises.Causes, s.Stale)
	}
	const published = 7310.6
	if s.Wait.Mean < 0.98*published || s.Wait.Mean > 1.02*published {
		t.Errorf("mean wait %.1f s, published %.1f", s.Wait.Mean, published)
	}
}
