package wire

import (
	"math"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestReportsOfGPUUse checks that a node's GPU use is clamped to possible values, and that unknown
// values are not reported as zero.
func TestReportsOfGPUUse(t *testing.T) {
	n := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		busy, known int64
		peak        *int64
		want        cluster.GPUUse
	}{
		{0, 0, nil, cluster.GPUUse{}},
		{0, 9, nil, cluster.GPUUse{KnownMs: 9}},
		{5, 9, n(0), cluster.GPUUse{BusyMs: 5, KnownMs: 9, MemoryKnown: true}},
		{50, 9, n(7), cluster.GPUUse{BusyMs: 9, KnownMs: 9, MemoryPeak: 7, MemoryKnown: true}},
		{-1, -9, n(-7), cluster.GPUUse{MemoryKnown: true}},
		{math.MinInt64, math.MaxInt64, n(math.MaxInt64), cluster.GPUUse{KnownMs: maxGPUs * maxRanMs, MemoryPeak: maxHeld, MemoryKnown: true}},
	} {
		r, err := ReadReport(&greylagv1.ReportTasksRequest{Tasks: []*greylagv1.ReportedTask{
			{Job: 1, Attempt: 1, Phase: greylagv1.TaskPhase_TASK_PHASE_STARTED, GpuBusyMs: c.busy, GpuKnownMs: c.known, GpuMemoryPeakBytes: c.peak},
		}}, "n1")
		if err != nil || r.Tasks[0].Task.GPU != c.want {
			t.Errorf("%d of %d: %+v, want %+v, %v", c.busy, c.known, r, c.want, err)
			continue
		}
		p := writeTask(&r.Tasks[0].Task)
		if p.GpuBusyMs != c.want.BusyMs || p.GpuKnownMs != c.want.KnownMs || (p.GpuMemoryPeakBytes != nil) != c.want.MemoryKnown || p.GetGpuMemoryPeakBytes() != int64(c.want.MemoryPeak) {
			t.Errorf("%+v is reported as %v", c.want, p)
		}
	}
	_, _, row := ReadUsageRow(WriteUsageRow(1, tally.Key{}, &tally.Tally{GPUBusy: 3, GPUKnown: 4}))
	if row.GPUBusy != 3 || row.GPUKnown != 4 {
		t.Errorf("a row of usage became %+v", row)
	}
}
