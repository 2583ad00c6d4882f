package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/report"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/test/cluster"
)

// TestReportsOfControllersAreEqual charges jobs while the leader is killed: every report of that
// time in every format is the same to the byte on every controller, also on one that has just
// started, and matches the jobs.
func TestReportsOfControllersAreEqual(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	b := newBank(t, three(), "")
	from := time.Now().Add(-time.Minute).Truncate(time.Second)
	b.mixed(ctx, "before")
	victim := b.leader(ctx)
	b.must(victim.Kill())
	b.mixed(ctx, "after")
	b.must(victim.Start())
	b.idle(ctx)
	p := period{from, time.Now().Add(time.Second).Truncate(time.Second)}
	b.over(ctx, p)
	var want map[string]string
	for _, ctl := range b.Controllers() {
		dir := filepath.Join(b.Work, "reports-"+ctl.Name)
		for _, name := range append(report.Reports(), "credits") {
			for _, format := range formatsOf(name) {
				b.made(ctx, ctl, "written", p.report(name, "--format", format, "-o", dir)...)
			}
		}
		b.made(ctx, ctl, "unchanged", p.report("usage", "--format", "csv", "-o", dir)...)
		got := filesOf(t, dir)
		if want == nil {
			want = got
		}
		for name, text := range got {
			if text != want[name] || text == "" {
				t.Errorf("%s of %s is\n%s\nof %s\n%s", name, ctl.Name, text, b.Controller(0).Name, want[name])
			}
		}
		if all := 2 * (8*4 + 3); len(got) != all || len(want) != all {
			t.Errorf("%s made %d files, want %d", ctl.Name, len(got), all)
		}
		m, err := report.Verify(filepath.Join(dir, "jobs", "xdmod", "period="+p.name()))
		if b.must(err); m.State != "closed" || m.Rows < 12 || m.WatermarkSeq < 12 || m.HeadHash == "" {
			t.Errorf("%s: %+v", ctl.Name, m)
		}
	}
	b.addUp(ctx, p)
}

// period is from one instant to before another.
type period struct{ from, to time.Time }

func (p period) name() string {
	return p.from.UTC().Format("20060102T150405Z") + "-" + p.to.UTC().Format("20060102T150405Z")
}

// report returns the command for a report of it.
func (p period) report(name string, options ...string) []string {
	return append([]string{"report", name, "--from", p.from.UTC().Format(time.RFC3339), "--to", p.to.UTC().Format(time.RFC3339)}, options...)
}

func formatsOf(name string) []string {
	list := []string{"text", "csv", "jsonl", "parquet"}
	switch name {
	case "usage", "credits":
		list = append(list, "focus")
	case "jobs":
		list = append(list, "xdmod")
	}
	return list
}

// mixed submits jobs that end in different ways, one of them while it runs.
func (b *bank) mixed(ctx context.Context, when string) {
	b.t.Helper()
	for i, body := range []string{"exit 0", "exit 3", "sleep 1", "sleep 2; exit 4", "exit 0", "sleep 1000"} {
		id, err := b.spend(ctx, b.gpuJob(fmt.Sprint(when, i), body))
		b.must(err)
		if body == "sleep 1000" {
			b.await(ctx, id, "RUNNING")
			b.cancel(ctx, id)
		}
	}
	b.opened(ctx, when)
}

// opened runs a job that has its GPU open until the controllers have received that.
func (b *bank) opened(ctx context.Context, when string) {
	b.t.Helper()
	if os.Geteuid() != 0 { // without containers there are no devices to open
		_, err := b.spend(ctx, b.gpuJob("opened"+when, "exit 0"))
		b.must(err)
		return
	}
	seen := "seen-" + when
	id, err := b.spend(ctx, b.gpuJob("opened"+when, "exec 3</dev/nvidia$GREYLAG_JOB_GPU_INDEXES; until [ -e "+seen+" ]; do sleep 0.1; done"))
	b.must(err)
	b.await(ctx, id, "RUNNING")
	b.must(cluster.Until(ctx, "the GPU of the job is seen to be busy", func() (bool, error) {
		job, err := b.get(ctx, id)
		return err == nil && len(job.Tasks) == 1 && job.Tasks[0].GpuBusyMs > 0, err
	}))
	b.must(os.WriteFile(filepath.Join(b.Work, seen), nil, 0o644))
	b.await(ctx, id, "COMPLETED")
}

// over waits until a period is over by the log's clock on every controller; that clock advances
// only with entries.
func (b *bank) over(ctx context.Context, p period) {
	b.t.Helper()
	b.must(cluster.Until(ctx, "the period is over", func() (bool, error) {
		b.probe(ctx)
		for _, ctl := range b.Controllers() {
			result, err := b.RunAt(ctx, ctl, "gctl", p.report("usage", "-o", filepath.Join(b.Work, "first"))...)
			if err != nil || result.Exit != 0 {
				return false, fmt.Errorf("%s: exit status %d: %s: %w", ctl.Name, result.Exit, result.Stderr, err)
			}
		}
		return true, nil
	}))
}

// made requires a controller to make a report with an outcome.
func (b *bank) made(ctx context.Context, ctl *cluster.Controller, outcome string, args ...string) {
	b.t.Helper()
	result, err := b.RunAt(ctx, ctl, "gctl", args...)
	b.must(err)
	if result.Exit != 0 || !strings.HasPrefix(result.Stdout, outcome+" ") {
		b.t.Fatalf("%s: gctl %s: exit status %d\n%s%s", ctl.Name, strings.Join(args, " "), result.Exit, result.Stdout, result.Stderr)
	}
}

// filesOf returns the content of a folder, by names below it.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, e := filepath.Rel(dir, path)
		if err != nil || e != nil {
			return fmt.Errorf("%w %w", err, e)
		}
		files[name] = string(text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// addUp checks that the reports of a period equal the sums of its jobs.
func (b *bank) addUp(ctx context.Context, p period) {
	b.t.Helper()
	var used, charged, jobs, spent, had, bill int64
	var reported, counted [2]int64 // for how long GPUs were busy, out of how long
	request := &greylagv1.Periods{Bounds: []*timestamppb.Timestamp{timestamppb.New(p.from), timestamppb.New(p.to)}}
	usage, err := b.client.Reports().StreamUsage(ctx, &greylagv1.StreamUsageRequest{Periods: request})
	b.must(err)
	defer usage.Close()
	for usage.Receive() {
		for _, r := range usage.Msg().Rows {
			used, charged = used+r.Gpu, charged+r.Charged
			reported[0], reported[1] = reported[0]+r.GpuBusy, reported[1]+r.GpuKnown
			for _, n := range r.Ended {
				jobs += n
			}
		}
	}
	b.must(usage.Err())
	credits, err := b.client.Reports().StreamCredits(ctx, &greylagv1.StreamCreditsRequest{Periods: request})
	b.must(err)
	defer credits.Close()
	for credits.Receive() {
		for _, r := range credits.Msg().Rows {
			spent += map[string]int64{"charge": r.Amount, "overshoot": r.Amount, "refund": -r.Amount}[wire.Word(r.Kind)]
		}
	}
	b.must(credits.Err())
	past, err := b.client.History().StreamHistory(ctx, &greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{Qos: []string{realQOS}}, Since: request.Bounds[0], Until: request.Bounds[1]})
	b.must(err)
	defer past.Close()
	count := int64(0)
	for past.Receive() {
		for _, j := range past.Msg().Jobs {
			count, bill = count+1, bill+j.GetCharged()
			had += gpus(j.Tres) * j.Job.Ended.AsTime().Sub(j.Job.Started.AsTime()).Milliseconds()
			for _, task := range j.Job.Tasks {
				counted[0], counted[1] = counted[0]+task.GpuBusyMs, counted[1]+task.GpuKnownMs
			}
			for _, a := range j.Attempts {
				counted[0], counted[1] = counted[0]+a.GpuBusyMs, counted[1]+a.GpuKnownMs
				had += gpus(a.Tres) * a.Ended.AsTime().Sub(a.Started.AsTime()).Milliseconds()
			}
		}
	}
	b.must(past.Err())
	// Reports count whole milliseconds since 1970, so that a job may differ by one.
	if off := used - had; off < -count || off > count || jobs != count || count != 14 || charged != bill || spent != bill || bill == 0 {
		b.t.Errorf("reports say %d GPU ms, %d jobs, %d charged, the journal %d; %d jobs came to %d GPU ms and %d", used, jobs, charged, spent, count, had, bill)
	}
	if reported != counted || reported[0] == 0 && os.Geteuid() == 0 || reported[1] < reported[0] || reported[1] > used {
		b.t.Errorf("reports say that GPUs were busy for %d of %d ms, the jobs %d", reported[0], reported[1], counted)
	}
}

func gpus(list []*greylagv1.ResourceCount) (n int64) {
	for _, x := range list {
		if x.Resource == "gpu" {
			n = x.Count
		}
	}
	return n
}
