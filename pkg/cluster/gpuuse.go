package cluster

// GPUUse is how GPUs were used, as counters that only grow. Its zero value is that
// nothing is known. How busy they were is BusyMs of KnownMs: the time of which nobody
// could tell, since boards or their driver did not, is in neither.
type GPUUse struct {
	BusyMs  int64 // milliseconds in which something ran on them, added up over the GPUs
	KnownMs int64 // milliseconds of which that is known, likewise
	// MemoryPeak is the most memory that was taken of any one of them, if MemoryKnown.
	MemoryPeak  Bytes
	MemoryKnown bool
}

// Known reports whether anything is known of how busy the GPUs were.
func (u GPUUse) Known() bool { return u.KnownMs > 0 }

// Plus is the use of two sets of GPUs, or of the same in two times.
func (u GPUUse) Plus(o GPUUse) GPUUse {
	u.BusyMs += o.BusyMs
	u.KnownMs += o.KnownMs
	u.MemoryPeak, u.MemoryKnown = max(u.MemoryPeak, o.MemoryPeak), u.MemoryKnown || o.MemoryKnown
	return u
}

// Later is what is known after two sayings about the same GPUs, whichever came first:
// the one of more time. A counter that began anew does not take anything back.
func (u GPUUse) Later(o GPUUse) GPUUse {
	if o.KnownMs > u.KnownMs {
		u.BusyMs, u.KnownMs = o.BusyMs, o.KnownMs
	}
	u.MemoryPeak, u.MemoryKnown = max(u.MemoryPeak, o.MemoryPeak), u.MemoryKnown || o.MemoryKnown
	return u
}

// Within is what of it is possible: no more than knownMs was seen, nothing was busy
// for longer than it was seen, and no GPU holds more than memory.
func (u GPUUse) Within(knownMs int64, memory Bytes) GPUUse {
	u.KnownMs = max(0, min(u.KnownMs, knownMs))
	u.BusyMs = max(0, min(u.BusyMs, u.KnownMs))
	u.MemoryPeak = max(0, min(u.MemoryPeak, memory))
	if !u.MemoryKnown {
		u.MemoryPeak = 0
	}
	return u
}
