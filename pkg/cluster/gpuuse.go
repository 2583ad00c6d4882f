package cluster

// GPUUse counts how GPUs were used, in counters that only grow. The zero value means unknown. The
// GPUs were busy for BusyMs of KnownMs: time for which a board or driver reported no utilization is
// in neither.
type GPUUse struct {
	BusyMs  int64 // milliseconds in which they ran work, summed over the GPUs
	KnownMs int64 // milliseconds with known utilization, summed likewise
	// MemoryPeak is the largest memory use of any one GPU, if MemoryKnown.
	MemoryPeak  Bytes
	MemoryKnown bool
}

// Known reports whether any utilization is known.
func (u GPUUse) Known() bool { return u.KnownMs > 0 }

// Plus returns the sum of the use of two sets of GPUs, or of the same GPUs in two periods.
func (u GPUUse) Plus(o GPUUse) GPUUse {
	u.BusyMs += o.BusyMs
	u.KnownMs += o.KnownMs
	u.MemoryPeak, u.MemoryKnown = max(u.MemoryPeak, o.MemoryPeak), u.MemoryKnown || o.MemoryKnown
	return u
}

// Later returns the more complete of two reports about the same GPUs, in either order: the one that
// covers more time. A counter that restarted does not lower it.
func (u GPUUse) Later(o GPUUse) GPUUse {
	if o.KnownMs > u.KnownMs {
		u.BusyMs, u.KnownMs = o.BusyMs, o.KnownMs
	}
	u.MemoryPeak, u.MemoryKnown = max(u.MemoryPeak, o.MemoryPeak), u.MemoryKnown || o.MemoryKnown
	return u
}

// Within clamps to what is possible: at most knownMs known, no more busy than known, and no more
// memory than a GPU has.
func (u GPUUse) Within(knownMs int64, memory Bytes) GPUUse {
	u.KnownMs = max(0, min(u.KnownMs, knownMs))
	u.BusyMs = max(0, min(u.BusyMs, u.KnownMs))
	u.MemoryPeak = max(0, min(u.MemoryPeak, memory))
	if !u.MemoryKnown {
		u.MemoryPeak = 0
	}
	return u
}
