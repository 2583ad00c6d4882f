package gpu

import (
	"strconv"
	"strings"
)

// KernelEvent returns the event of a line of the kernel log, with its PCI address in Bus; false for
// other lines. The driver writes
//
//	NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
//	NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 94, pid=1234, name=python, Contained: SM (0x1).
//	NVRM: GPU at PCI:0000:1b:00: ... GPU 0000:1b:00.0 has fallen off the bus.
//	nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error
func KernelEvent(line string) (Event, bool) {
	if _, rest, found := strings.Cut(line, "SXid (PCI:"); found {
		return switchEvent(rest)
	}
	if _, rest, found := strings.Cut(line, "NVRM: Xid (PCI:"); found {
		return xidEvent(rest)
	}
	if strings.Contains(line, "NVRM:") && strings.Contains(line, "fallen off the bus") {
		e := Event{Bus: addressIn(line), Count: 1}.withXID(79)
		return e, e.Bus != ""
	}
	return Event{}, false
}

// xidEvent reads a line from the PCI address on.
func xidEvent(rest string) (Event, bool) {
	rest, instance := cutInstance(rest)
	bus, number, text, ok := numbered(rest)
	if !ok {
		return Event{}, false
	}
	e := Event{Bus: bus, Count: 1, Instance: instance}.withXID(number)
	if e.Action == Verdict {
		_, to, found := strings.Cut(text, " to 0x")
		hex, _, _ := strings.Cut(to, " ")
		action, err := strconv.ParseUint(hex, 16, 8)
		if !found || err != nil {
			return e, true
		}
		e.Recovery, e.Judged = Recovery(action), true
		e.Message = "the driver asks for: " + e.Recovery.String()
	}
	return e, true
}

// cutInstance removes the MIG instance that follows a PCI address. It returns its number plus 1; 0 for none.
func cutInstance(rest string) (without string, instance uint32) {
	bus, attributes, has := strings.Cut(rest, " GPU-I:")
	attributes, text, closed := strings.Cut(attributes, ")")
	if !has || !closed || strings.Contains(bus, ")") {
		return rest, 0
	}
	digits, _, _ := strings.Cut(attributes, " ") // a compute instance may follow
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return rest, 0
	}
	return bus + ")" + text, uint32(number) + 1
}

// switchEvent reads the error of a switch. It concerns all GPUs: fatal ones count as errors of links.
func switchEvent(rest string) (Event, bool) {
	_, number, text, ok := numbered(rest)
	if !ok {
		return Event{}, false
	}
	e := Event{Action: Note, Message: "NVSwitch error " + strconv.Itoa(number), Count: 1}
	if strings.Contains(text, "Fatal") && !strings.Contains(text, "Non-fatal") {
		e.Action = Link
	}
	return e, true
}

// numbered splits "0000:1b:00): 79, text".
func numbered(rest string) (bus string, number int, text string, ok bool) {
	bus, rest, ok = strings.Cut(rest, "): ")
	digits, text, _ := strings.Cut(rest, ",")
	number, err := strconv.Atoi(strings.TrimSpace(digits))
	return fullAddress(bus), number, text, ok && err == nil && number > 0
}

// addressIn returns the first PCI address in a line; "" for none.
func addressIn(line string) string {
	for word := range strings.FieldsSeq(line) {
		word = strings.Trim(strings.TrimPrefix(word, "PCI:"), ":.,()")
		if strings.Count(word, ":") == 2 && len(word) >= len("0000:1b:00") {
			return fullAddress(word)
		}
	}
	return ""
}

// fullAddress returns an address as sysfs writes it. The driver leaves the function out.
func fullAddress(bus string) string {
	bus = strings.ToLower(bus)
	if bus != "" && !strings.Contains(bus, ".") {
		bus += ".0"
	}
	return bus
}
