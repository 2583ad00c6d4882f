package gpu

import (
	_ "embed" // the table
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Action is the consequence of an event for its device and for the job on it. Package health applies it.
type Action uint8

// The actions, in the order of xids.txt.
const (
	// Unknown numbers are logged; several in an hour make a device degraded.
	Unknown Action = iota
	// Note is logged.
	Note
	// Shadow follows another error, or the normal end of a program. It never acts alone.
	Shadow
	// User is a fault of the program, which its job is notified of.
	User
	// Suspect is User until the programs of several users failed on one device.
	Suspect
	// Remap announces a reset when the device is idle. It takes new jobs meanwhile.
	Remap
	// Link is an error of NVLink: degraded, and if it comes again, the node is drained.
	Link
	// Contained hit one job, which the driver ends. The device takes no new job before a reset.
	Contained
	// Reset devices do not work until a reset; their jobs are ended.
	Reset
	// Drain takes the node out of service; jobs on it continue.
	Drain
	// Reboot devices do not work until the node reboots; their jobs are ended.
	Reboot
	// Verdict is the driver's own recovery action, which comes before this table.
	Verdict
)

var actionNames = [...]string{
	"unknown", "note", "shadow", "user", "suspect", "remap", "link", "contained", "reset", "drain", "reboot", "verdict",
}

// String returns the action as xids.txt writes it.
func (a Action) String() string { return actionNames[a] }

// Class returns the class of an action as monitoring shows it: "notice", or "degraded" for devices
// that take fewer or no new jobs, or "broken" for those that do not work.
func (a Action) Class() string {
	switch {
	case a < Link, a == Verdict:
		return "notice"
	case a < Reset:
		return "degraded"
	}
	return "broken"
}

// wholeGPU reports whether an event concerns all instances of a GPU: after it the GPU needs a reset at
// once, or it is about the board.
func (a Action) wholeGPU() bool { return a >= Link && a != Contained }

//go:embed xids.txt
var xidText string

// xid is the meaning of one error number.
type xid struct {
	action Action
	words  string
}

// xidTable is the parsed list of errors.
type xidTable struct {
	version int
	rows    map[int]xid
}

// xids returns the table, which its test reads completely.
var xids = sync.OnceValue(func() xidTable {
	t, err := parseXIDs(xidText)
	if err != nil {
		panic(err)
	}
	return t
})

// of returns the meaning of a number.
func (t xidTable) of(number int) xid {
	if x, known := t.rows[number]; known {
		return x
	}
	return xid{Unknown, fmt.Sprintf("XID %d is not in table version %d", number, t.version)}
}

// parseXIDs reads the form of xids.txt: "NUMBERS ACTION WORDS", one row a line.
func parseXIDs(text string) (xidTable, error) {
	t := xidTable{rows: map[int]xid{}}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if fields[0] == "version" && len(fields) == 2 {
			t.version, _ = strconv.Atoi(fields[1]) // 0 is refused below
			continue
		}
		if err := t.add(fields); err != nil {
			return t, err
		}
	}
	if t.version < 1 {
		return t, fmt.Errorf("XID table: no version: %w", ErrProtocol)
	}
	return t, nil
}

// add adds the rows of one line.
func (t xidTable) add(fields []string) error {
	for i, field := range fields {
		low, high, isRange := strings.Cut(field, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.Atoi(low)
		if err != nil {
			x, ok := rowOf(fields[i:])
			if !ok || i == 0 {
				return fmt.Errorf("XID table: line %q: %w", strings.Join(fields, " "), ErrProtocol)
			}
			for number, row := range t.rows {
				if row.action == Unknown {
					t.rows[number] = x
				}
			}
			return nil
		}
		last, err := strconv.Atoi(high)
		if err != nil || last < first {
			return fmt.Errorf("XID table: numbers %q: %w", field, ErrProtocol)
		}
		for number := first; number <= last; number++ {
			if _, duplicate := t.rows[number]; duplicate {
				return fmt.Errorf("XID table: number %d comes twice: %w", number, ErrProtocol)
			}
			t.rows[number] = xid{} // until the action is read
		}
	}
	return fmt.Errorf("XID table: line %q has no action: %w", strings.Join(fields, " "), ErrProtocol)
}

// rowOf reads an action and its words.
func rowOf(fields []string) (xid, bool) {
	for action, name := range actionNames {
		if fields[0] == name && action > int(Unknown) && len(fields) > 1 {
			return xid{Action(action), strings.Join(fields[1:], " ")}, true
		}
	}
	return xid{}, false
}
