package cluster

import (
	"fmt"
	"strings"
	"time"
)

// WarnSignal is a signal sent a given time before the time limit.
type WarnSignal struct {
	Number    int32 // 0 means none
	Before    time.Duration
	BatchOnly bool // only the script itself, not its children
}

// Lead returns how long before the end of a time limit the signal is sent. A time that is not shorter than the limit
// counts as half of the limit, since a program that has just started handles no signals yet. So does
// DefaultCheckpointLead if it is longer than that.
func (w WarnSignal) Lead(limit time.Duration) time.Duration {
	if limit > 0 && (w.Before >= limit || w.Before == DefaultCheckpointLead) {
		return min(w.Before, limit/2)
	}
	return w.Before
}

// signalNames are Linux's, which are the same on all machines that Greylag is built for.
const signalNames = "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT " +
	"CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"

// SignalNumber returns the number of a signal's name, with or without SIG.
func SignalNumber(name string) (int32, bool) {
	name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	for i, known := range strings.Fields(signalNames) {
		if known == name {
			return int32(i + 1), true
		}
	}
	return 0, false
}

// SignalName returns the name of a signal without SIG; "signal 34" for one without a name.
func SignalName(number int32) string {
	names := strings.Fields(signalNames)
	if number < 1 || int(number) > len(names) {
		return fmt.Sprintf("signal %d", number)
	}
	return names[number-1]
}
