package gpu

// NVML's event types (nvml.h, nvmlEventType*).
const (
	typeDoubleBitECC   = 0x2
	typeXID            = 0x8
	typeNonFatalPoison = 0x1000
	typeFatalPoison    = 0x2000
	typeUnavailable    = 0x4000
	typeRecovery       = 0x8000
)

// Recovery is the driver's verdict about a device (NVML_GPU_RECOVERY_ACTION_*). 0: it works.
type Recovery uint8

// The verdicts.
const (
	RecoverReset      Recovery = 1
	RecoverReboot     Recovery = 2
	RecoverPeers      Recovery = 3
	RecoverDrainReset Recovery = 4
	RecoverIMEX       Recovery = 5
	RecoverBus        Recovery = 6
	RecoverSystem     Recovery = 7
)

// String returns what the device needs.
func (r Recovery) String() string {
	names := [...]string{"nothing", "reset", "reboot of its node", "drain of peer-to-peer traffic", "drain and a reset",
		"reset of its IMEX domain", "bus reset", "reboot of its system"}
	if int(r) >= len(names) {
		return "recovery"
	}
	return names[r]
}

// event returns the meaning of an NVML event.
func event(raw RawEvent) (Event, bool) {
	e := Event{UUID: raw.UUID, Instance: raw.Instance, Count: max(raw.Count, 1)}
	switch raw.Type {
	case typeXID:
		// Numbers are below 1,000; others are reported unchanged.
		return e.withXID(int(min(raw.Data, 1<<31-1))), true
	case typeDoubleBitECC:
		e.Action, e.Message = Contained, "uncorrectable memory error (double bit ECC)"
	case typeNonFatalPoison:
		e.Action, e.Message = Contained, "poisoned memory was read"
	case typeFatalPoison:
		e.Action, e.Message = Reset, "poisoned memory was read, and the GPU cannot go on"
	case typeUnavailable:
		e.Action, e.Message = Reboot, "it is unavailable"
	case typeRecovery:
		e.Action, e.Recovery, e.Judged = Verdict, Recovery(min(raw.Data, 255)), true
		e.Message = "the driver asks for: " + e.Recovery.String()
	default:
		return Event{}, false
	}
	return e, true
}

// withXID returns the event with the meaning of an error number.
func (e Event) withXID(number int) Event {
	x := xids().of(number)
	e.XID, e.Action, e.Message = number, x.action, x.words
	return e
}
