package acct

import (
	"slices"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/pkg/cluster"
)

// gpuUse is how its GPUs were used, of all its tasks.
func (r *row) gpuUse() cluster.GPUUse {
	if a := r.earlier; a != nil {
		return ui.GPUUse(a.GpuBusyMs, a.GpuKnownMs, a.GpuMemoryPeakBytes)
	}
	return ui.GPUUseOf(r.Tasks)
}

// gpuFields are measured on GPUs; empty if unknown.
func gpuFields() []field {
	used := func(name string, of func([]int64) int64) field {
		return field{name, 14, func(r *row) string { return r.tresUse(of) }}
	}
	return []field{
		{"GPUUtil", 8, func(r *row) string { return ui.BusyPercent(r.gpuUse()) }},
		{"MaxGPUMem", 10, func(r *row) string {
			if u := r.gpuUse(); u.MemoryKnown {
				return sizeText(u.MemoryPeak, r.in.unit)
			}
			return ""
		}},
		used("TRESUsageInAve", func(n []int64) int64 { return sum(n) / int64(len(n)) }),
		used("TRESUsageInMax", slices.Max[[]int64]),
		used("TRESUsageInMin", slices.Min[[]int64]),
		used("TRESUsageInTot", sum),
	}
}

func sum(numbers []int64) (total int64) {
	for _, n := range numbers {
		total += n
	}
	return total
}

// tresUse is what its tasks used, in sacct's words: of each resource one number of those
// of the tasks. Of GPUs it is the percent of the time in which something ran on them, and
// the most memory that was taken of one; tasks that do not know are left out.
func (r *row) tresUse(of func([]int64) int64) string {
	var words []string
	add := func(name string, value func(*greylagv1.Task) (int64, bool), text func(int64) string) {
		var all []int64
		for _, t := range r.tasks() {
			if n, known := value(t); known {
				all = append(all, n)
			}
		}
		if len(all) > 0 {
			words = append(words, name+"="+text(of(all)))
		}
	}
	add("cpu", func(t *greylagv1.Task) (int64, bool) { return int64(t.CpuTime.AsDuration()), t.CpuTime != nil }, func(n int64) string { return lengthText(time.Duration(n)) })
	add("gres/gpumem", func(t *greylagv1.Task) (int64, bool) { return t.GetGpuMemoryPeakBytes(), t.GpuMemoryPeakBytes != nil }, func(n int64) string { return sizeText(cluster.Bytes(n), r.in.unit) })
	add("gres/gpuutil", func(t *greylagv1.Task) (int64, bool) {
		return (t.GpuBusyMs*100 + t.GpuKnownMs/2) / max(t.GpuKnownMs, 1), t.GpuKnownMs > 0
	}, func(n int64) string { return strconv.FormatInt(n, 10) })
	add("mem", func(t *greylagv1.Task) (int64, bool) { return t.MemoryPeak, t.MemoryPeak > 0 }, r.resident)
	return strings.Join(words, ",")
}
