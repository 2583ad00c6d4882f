package gpu

import "fmt"

// NVML's event types (nvml.h, nvmlEventType*).
const (
	typeDoubleBitECC   = 0x2
	typeXID            = 0x8
	typeNonFatalPoison = 0x1000
	typeFatalPoison    = 0x2000
	typeUnavailable    = 0x4000
	typeRecovery       = 0x8000
)

// xid is the meaning of one error number.
type xid struct {
	severity Severity
	words    string
}

// xids returns the part of NVIDIA's list of XID errors that states whose fault one is. An error of
// a program is a Notice to its job, and so is an unknown number.
func xids(number int) xid {
	switch number {
	case 13:
		return xid{Notice, "graphics engine exception, usually an illegal access by the program"}
	case 31:
		return xid{Notice, "memory page fault, usually an illegal access by the program"}
	case 43:
		return xid{Notice, "GPU stopped processing for a program"}
	case 45:
		return xid{Notice, "work removed as its program ended"}
	case 68:
		return xid{Notice, "video processor exception"}
	case 109:
		return xid{Notice, "context switch timed out"}
	case 94:
		return xid{Degraded, "contained memory error: the job was hit, the GPU needs a reset"}
	case 48:
		return xid{Degraded, "uncorrectable memory error"}
	case 62:
		return xid{Broken, "internal micro-controller halted"}
	case 63:
		return xid{Notice, "a memory row was set aside to be remapped"}
	case 64:
		return xid{Degraded, "memory rows could not be remapped"}
	case 74:
		return xid{Degraded, "NVLink error"}
	case 79:
		return xid{Broken, "GPU has fallen off the bus"}
	case 95:
		return xid{Broken, "uncontained memory error"}
	case 119, 120:
		return xid{Broken, "GPU system processor does not answer"}
	case 140:
		return xid{Degraded, "unrecovered memory error"}
	}
	return xid{Notice, "error"}
}

// event returns the meaning of an NVML event.
func event(raw RawEvent) (Event, bool) {
	e := Event{UUID: raw.UUID}
	switch raw.Type {
	case typeXID:
		// Numbers are below 1,000; others are reported unchanged.
		e.XID = int(min(raw.Data, 1<<31-1))
		x := xids(e.XID)
		e.Severity, e.Message = x.severity, fmt.Sprintf("XID %d: %s", e.XID, x.words)
	case typeDoubleBitECC:
		e.Severity, e.Message = Degraded, "uncorrectable memory error (double bit ECC)"
	case typeNonFatalPoison:
		e.Severity, e.Message = Degraded, "poisoned memory was read"
	case typeFatalPoison:
		e.Severity, e.Message = Broken, "poisoned memory was read, and the GPU cannot go on"
	case typeUnavailable:
		e.Severity, e.Message = Broken, "GPU is unavailable"
	case typeRecovery:
		if raw.Data == 0 {
			e.Severity, e.Message = Healed, "GPU has recovered"
			break
		}
		e.Severity, e.Message = Degraded, "GPU needs a "+recovery(raw.Data)
	default:
		return Event{}, false
	}
	return e, true
}

// recovery returns what a GPU needs to work again (NVML_GPU_RECOVERY_ACTION_*).
func recovery(action uint64) string {
	names := [...]string{1: "reset", 2: "reboot of its node", 3: "drain of peer-to-peer traffic", 4: "drain and a reset",
		5: "reset of its IMEX domain", 6: "bus reset", 7: "reboot of its system"}
	if action == 0 || action >= uint64(len(names)) {
		return "recovery"
	}
	return names[action]
}

// Recovery returns the fault of a device whose recovery action is not 0.
func Recovery(action uint64) string { return "GPU needs a " + recovery(action) }
