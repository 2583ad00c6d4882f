package ui

import (
	"fmt"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// GPUUse is how GPUs were used, from a message.
func GPUUse(busyMs, knownMs int64, peak *int64) cluster.GPUUse {
	u := cluster.GPUUse{BusyMs: busyMs, KnownMs: knownMs, MemoryKnown: peak != nil}
	if peak != nil {
		u.MemoryPeak = cluster.Bytes(*peak)
	}
	return u
}

// GPUUseOf returns the use of the GPUs of all tasks.
func GPUUseOf(tasks []*greylagv1.Task) (u cluster.GPUUse) {
	for _, t := range tasks {
		u = u.Plus(GPUUse(t.GpuBusyMs, t.GpuKnownMs, t.GpuMemoryPeakBytes))
	}
	return u
}

// BusyPercent returns the percentage of the time in which GPUs were busy, with one decimal; "" when
// it is unknown.
func BusyPercent(u cluster.GPUUse) string {
	if !u.Known() {
		return ""
	}
	n := (u.BusyMs*1000 + u.KnownMs/2) / u.KnownMs
	return fmt.Sprintf("%d.%d", n/10, n%10)
}

// GPUUseJSON is how GPUs were used, in the form of --json: unknown values are left out.
type GPUUseJSON struct {
	BusyMs     *int64 `json:"gpu_busy_ms,omitempty"`
	KnownMs    int64  `json:"gpu_known_ms,omitempty"`
	MemoryPeak *int64 `json:"gpu_memory_peak_bytes,omitempty"`
}

// WriteGPUUse converts a message to the form of --json.
func WriteGPUUse(busyMs, knownMs int64, peak *int64) (out GPUUseJSON) {
	if knownMs > 0 {
		out.BusyMs, out.KnownMs = &busyMs, knownMs
	}
	out.MemoryPeak = peak
	return out
}
