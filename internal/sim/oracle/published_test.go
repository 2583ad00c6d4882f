package oracle

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/sim/trace"
)

// published is the folder of traces, next to which are the schedules published for them.
func published(t testing.TB) string {
	dir := os.Getenv("GREYLAG_TRACES")
	if dir == "" {
		t.Skip("needs GREYLAG_TRACES, the folder with traces/ and oracle/")
	}
	if _, err := os.Stat(filepath.Join(dir, "traces")); err == nil {
		return dir
	}
	return filepath.Dir(dir)
}

func logOf(t testing.TB, name string) []Job {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log, err := trace.Read(f, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	jobs := make([]Job, len(log.Jobs))
	for i, j := range log.Jobs {
		jobs[i] = Job{Submit: j.Submit, Run: j.Run, Estimate: j.Estimate, Procs: j.Procs}
	}
	return jobs
}

// TestPublishedSchedules compares every start and promise with those of published simulators.
func TestPublishedSchedules(t *testing.T) {
	dir := published(t)
	for _, log := range []struct {
		name  string
		procs int32
	}{{"KTH-SP2", 100}, {"SDSC-SP2", 128}} {
		jobs := logOf(t, filepath.Join(dir, "traces", log.name+".sc15.swf.gz"))
		for name, a := range map[string]Algorithm{"fcfs": FCFS, "easy": EASY, "cons": Conservative} {
			t.Run(log.name+"/"+name, func(t *testing.T) {
				out, err := Run(jobs, log.procs, a)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, filepath.Join(dir, "oracle", log.name+"."+name+".csv.gz"), out)
			})
		}
	}
}

func compare(t *testing.T, name string, out []JobStart) {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	lines.Scan()
	differ, n := 0, 0
	for ; lines.Scan(); n++ {
		var id, submit, procs, est, run, start int64
		promise := int64(-1)
		fmt.Sscan(strings.ReplaceAll(lines.Text(), ",", " "), &id, &submit, &procs, &est, &run, &start, &promise)
		got := out[n]
		promised := int64(got.Promise / time.Second)
		if got.Promise < 0 {
			promised = -1
		}
		if got.Start != time.Duration(start)*time.Second || promised != promise {
			if differ++; differ <= 5 {
				t.Errorf("job %d: start %v, want %d; promise %v, want %d", id, got.Start.Seconds(), start, promised, promise)
			}
		}
	}
	if differ > 0 || n != len(out) {
		t.Errorf("%d of %d jobs differ, of %d", differ, n, len(out))
	}
}
