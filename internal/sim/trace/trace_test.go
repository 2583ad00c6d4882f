package trace

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"github.com/cockroachdb/datadriven"
	"github.com/greylag/greylag/test/scenario"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestScenarios reads the logs of testdata: a line with the options, the log, and the result.
func TestScenarios(t *testing.T) {
	scenario.Files(t, "testdata/*.txt", func(*testing.T) func(*testing.T, *datadriven.TestData) string {
		return func(_ *testing.T, d *datadriven.TestData) string { return describe(d.FullCmd(), d.Input+"\n") }
	})
}

func describe(options, text string) string {
	o := Options{Skip: strings.Contains(options, "skip"), Sort: strings.Contains(options, "sort")}
	fmt.Sscanf(options, "read largest=%d", &o.Largest.Procs)
	log, err := Read(strings.NewReader(text), o)
	var b strings.Builder
	if err != nil {
		fmt.Fprintln(&b, err)
		return b.String()
	}
	for _, j := range log.Jobs {
		fmt.Fprintf(&b, "%d: %s at %s runs %s of %s, %d procs, %d gpus, %q %q\n", j.Line, j.ID, Seconds(j.Submit), Seconds(j.Run), Seconds(j.Estimate), j.Procs, j.GPUs, j.User, j.Account)
	}
	if log.Bad.Count > 0 {
		fmt.Fprintf(&b, "bad %d\n%s\n", log.Bad.Count, log.Bad.String())
	}
	fmt.Fprintf(&b, "capped %d, guessed %d, machine %d\n", log.Capped, log.Guessed, log.MaxProcs)
	return b.String()
}

func archive(t *testing.T, tables ...string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	a := tar.NewWriter(z)
	for i, text := range tables {
		err := errors.Join(a.WriteHeader(&tar.Header{Name: fmt.Sprintf("t%d.csv", i), Size: int64(len(text)), Mode: 0o600, Format: tar.FormatUSTAR}))
		if _, werr := a.Write([]byte(text)); err != nil || werr != nil {
			t.Fatal(err, werr)
		}
	}
	if err := errors.Join(a.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchive(t *testing.T) {
	one, two := "job_id,submission_time,duration,num_gpu\na,1,2,3\n", "job_id,submission_time,duration,num_gpu\nb,1,2,3\n"
	log, err := Read(bytes.NewReader(archive(t, one, two)), Options{Member: "t1"})
	if err != nil || log.Jobs[0].ID != "b" {
		t.Fatal(log, err)
	}
	for _, member := range []string{"", "t9"} {
		if _, err := Read(bytes.NewReader(archive(t, one, two)), Options{Member: member}); !errors.Is(err, ErrBad) || !strings.Contains(err.Error(), "t0, t1") {
			t.Errorf("member %q: %v", member, err)
		}
	}
	if log, err := Read(bytes.NewReader(archive(t, one)), Options{}); err != nil || log.Jobs[0].ID != "a" {
		t.Error(log, err)
	}
	cut := archive(t, one, two)
	if _, err := Read(bytes.NewReader(cut[:len(cut)/2]), Options{Member: "t1"}); !errors.Is(err, ErrBad) {
		t.Error(err)
	}
}

func TestModelFollowsSeed(t *testing.T) {
	model := &Trace{}
	for i := range 100 {
		model.Jobs = append(model.Jobs, Job{Run: time.Hour, Estimate: time.Duration(1+i%5) * time.Hour})
	}
	draw := func(seed uint64) []Job {
		log := &Trace{Jobs: []Job{{Run: time.Hour, Estimate: time.Hour}, {Run: 9 * time.Hour, Estimate: 9 * time.Hour}, {Run: 1, Estimate: 5}}}
		NewModel(model).Apply(log, seed)
		return log.Jobs
	}
	a := draw(1)
	if !slices.Equal(a, draw(1)) || a[2].Estimate != 5 {
		t.Error(a)
	}
	for _, j := range a {
		if j.Estimate < j.Run {
			t.Errorf("%+v asks for less than it runs", j)
		}
	}
}

// FuzzRead: every job of any log that is accepted is valid.
func FuzzRead(f *testing.F) {
	f.Add([]byte("1 0 -1 10 4 -1 -1 4 20 -1 1 1 -1 -1 -1 -1 -1 -1\n"))
	f.Add([]byte("id,submit,run,gpus\nx,2017-10-09 07:01:55,66.5,1\n"))
	f.Add([]byte("; MaxProcs: 9\n1 -5 3 NaN 1e99 0 0 0x7 -1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, o := range []Options{{}, {Skip: true, Sort: true, Largest: Size{Procs: 8, GPUs: 8}}} {
			log, err := Read(bytes.NewReader(text), o)
			if err != nil {
				continue
			}
			last := time.Duration(0)
			for _, j := range log.Jobs {
				if j.Submit < last || j.Run < 1 || j.Run > j.Estimate || j.Procs < 0 || j.GPUs < 0 || j.Procs+j.GPUs < 1 || j.ID == "" {
					t.Fatalf("%+v", j)
				}
				last = j.Submit
			}
		}
	})
}

// TestGenerate checks that a generated log is the same each time, has the documented means, and is read
// back as it was written.
func TestGenerate(t *testing.T) {
	w := Workload{Jobs: 20_000, Nodes: 5000, CPUsPerNode: 16, Load: 0.75, Seed: 1}
	log, err := w.Generate()
	if err != nil {
		t.Fatal(err)
	}
	var text, again bytes.Buffer
	for _, out := range []*bytes.Buffer{&text, &again} {
		same, err := w.Generate()
		if err != nil || same.WriteSWF(out) != nil {
			t.Fatal(err)
		}
	}
	if text.String() != again.String() {
		t.Error("the same seed gives another log")
	}
	back, err := Read(&text, Options{})
	if err != nil || len(back.Jobs) != w.Jobs || back.MaxProcs != 80_000 {
		t.Fatalf("the log is read as %d jobs on %d processors: %v", len(back.Jobs), back.MaxProcs, err)
	}
	work, run, full := 0.0, 0.0, 0
	for i := range back.Jobs {
		j := &back.Jobs[i]
		if want := &log.Jobs[i]; j.Submit != want.Submit || j.Run != want.Run || j.Procs != want.Procs || j.Estimate != want.Estimate || j.User != want.User {
			t.Fatalf("job %d is read as %+v, not %+v", i, j, want)
		}
		work += float64(j.Procs) * j.Run.Seconds()
		run += j.Run.Seconds()
		if j.Procs == 4096*16 {
			full++
		}
	}
	if mean := run / 20_000; mean < 3300 || mean > 3570 { // 19,940 / ln(1,000/3) s
		t.Errorf("jobs run for %.0f s on average", mean)
	}
	if full < 60 || full > 120 { // 20,000 × 2^-6 / 3.38
		t.Errorf("%d jobs of 4,096 nodes", full)
	}
	if load := work / back.Jobs[w.Jobs-1].Submit.Seconds() / 80_000; load < 0.65 || load > 0.85 {
		t.Errorf("the load is %.3f", load)
	}
	for _, bad := range []Workload{
		{}, {Jobs: 1, Nodes: 1, CPUsPerNode: 1}, {Jobs: 1, Nodes: 1 << 20, CPUsPerNode: 1 << 20, Load: 1},
		{Jobs: 1, Nodes: 1, CPUsPerNode: 1, Load: math.NaN()}, {Jobs: -1, Nodes: 1, CPUsPerNode: 1, Load: 1},
		{Jobs: 20_000, Nodes: 1, CPUsPerNode: 1, Load: 0.005}, {Jobs: 1, Nodes: 1, CPUsPerNode: 1, Load: 1e-310},
	} {
		if _, err := bad.Generate(); !errors.Is(err, ErrWorkload) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
