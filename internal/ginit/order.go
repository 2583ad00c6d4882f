// Package ginit is the first process of every task: it opens the output as
// the user, becomes the user, runs the task's program, passes signals on,
// reaps, and leaves a record of the end that survives every daemon.
//
// It decides how a program's end is written down, from wait statuses and what the
// kernel counted of the task's control group. It never decides whether a task runs, and holds no policy. What it does is
// ordered by one file (Order) and told by another (Record), both in a folder
// that package taskdir lays out; it speaks to nobody.
//
// Rejected: a second executable stage that opens files after becoming the user
// (one more exec, 1 to 2 ms of every task; the effective ids of one locked
// thread do the same), and opening the output before the task starts, as root
// (a symbolic link then aims root's pen at any file).
package ginit

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// File names inside a task's folder.
const (
	OrderFile   = "order"
	ScriptFile  = "script"
	StartedFile = "started"
	RecordFile  = "exit"
)

// Exit statuses of ginit where the program was never executed. They mean
// something only together with a Record that has a LaunchError.
const (
	ExitOrder   = 116 // the order cannot be read, or the task was started before
	ExitWorkDir = 117 // the working directory cannot be entered
	ExitOutput  = 118 // an output file cannot be opened
	ExitExec    = 119 // the program cannot be executed
	ExitInput   = 120 // the input file cannot be opened
)

// ErrBadFile says that an order or a record is not one.
var ErrBadFile = errors.New("not a ginit file")

// Order is what ginit is to do.
type Order struct {
	// Confine puts the seccomp filter on the program.
	Confine bool `json:"confine,omitempty"`
	// Become says to run the program as UID, GID and Groups; without it, it
	// runs as who ginit is.
	Become   bool     `json:"become,omitempty"`
	UID      uint32   `json:"uid,omitempty"`
	GID      uint32   `json:"gid,omitempty"`
	Groups   []uint32 `json:"groups,omitempty"`
	Args     []string `json:"args"`
	Env      []string `json:"env,omitempty"`
	WorkDir  string   `json:"workdir,omitempty"` // empty: where ginit is
	Stdin    string   `json:"stdin,omitempty"`   // empty: /dev/null
	Stdout   string   `json:"stdout,omitempty"`
	Stderr   string   `json:"stderr,omitempty"`
	Append   bool     `json:"append,omitempty"`
	Umask    uint32   `json:"umask"`
	Subreap  bool     `json:"subreap,omitempty"`   // not PID 1: gather and kill stray descendants at the end
	ScriptIs string   `json:"script_is,omitempty"` // what to call Args[0] in messages
	Group    string   `json:"group,omitempty"`     // where the task sees its control group of version 2
}

// Record is how the task ended.
type Record struct {
	Code        int    `json:"code"`
	Signal      int    `json:"signal,omitempty"`
	LaunchError string `json:"launch_error,omitempty"`
	Started     int64  `json:"started,omitempty"` // nanoseconds since 1970; 0: never executed
	Ended       int64  `json:"ended"`
	MaxRSS      uint64 `json:"max_rss,omitempty"`   // bytes, of the largest process, or of all where there is a group
	CPU         int64  `json:"cpu,omitempty"`       // nanoseconds, user and system, of all that were waited for
	User        int64  `json:"user,omitempty"`      // of that the user time
	OOMKills    uint64 `json:"oom_kills,omitempty"` // processes killed for memory, where there is a group
	Measured    bool   `json:"measured,omitempty"`  // the last four are the group's
}

// Duration is the time the program ran; 0 where it never did.
func (r Record) Duration() time.Duration {
	if r.Started == 0 || r.Ended < r.Started {
		return 0
	}
	return time.Duration(r.Ended - r.Started)
}

// EncodeOrder writes an Order for DecodeOrder.
func EncodeOrder(o Order) ([]byte, error) { return json.Marshal(o) }

// DecodeOrder reads an Order. ErrBadFile where there is nothing to run.
func DecodeOrder(data []byte) (Order, error) {
	var o Order
	if err := json.Unmarshal(data, &o); err != nil {
		return Order{}, fmt.Errorf("order: %w: %w", ErrBadFile, err)
	}
	if len(o.Args) == 0 || o.Args[0] == "" {
		return Order{}, fmt.Errorf("order: no program: %w", ErrBadFile)
	}
	return o, nil
}

// EncodeRecord writes a Record for DecodeRecord.
func EncodeRecord(r Record) ([]byte, error) { return json.Marshal(r) }

// DecodeRecord reads a Record and refuses one that no ginit wrote: a status
// outside 0 to 255, a signal outside 0 to 127.
func DecodeRecord(data []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("exit record: %w: %w", ErrBadFile, err)
	}
	if r.Code < 0 || r.Code > 255 || r.Signal < 0 || r.Signal > 127 || r.Ended <= 0 {
		return Record{}, fmt.Errorf("exit record: impossible values: %w", ErrBadFile)
	}
	return r, nil
}
