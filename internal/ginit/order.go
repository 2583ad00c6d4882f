// Package ginit is the first process of every task. It opens the output as the user, becomes the
// user, runs the task's program, forwards signals, reaps, and leaves an exit record that survives
// every daemon.
//
// It decides how the end of a program is recorded, from wait statuses and the counters of the
// task's control group. It never decides whether a task runs, and holds no policy. Its input is one
// file (Order) and its output another (Record), both in a directory that package taskdir defines.
// Until the program ends, files in the same directory order the steps of the task: programs that run
// next to it, as the same user (StepOrderFile). It has no other communication.
//
// Rejected: a second executable that opens files after becoming the user (one more exec, 1 to 2 ms
// for every task; the effective IDs of one locked thread do the same), and opening the output
// before the task starts, as root (a symbolic link could then direct root's writes to any file).
package ginit

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// File names inside a task's directory.
const (
	OrderFile   = "order"
	ScriptFile  = "script"
	StartedFile = "started"
	RecordFile  = "exit"
)

// The files of step N. Its order is what the program at Order.Stepd reads, as the user; ginit runs that
// program with the file's path as its only argument, once, when the file appears. Its record is like
// that of the task. A file of a signal sends the program that signal once.

// StepOrderFile returns the name of the order of a step.
func StepOrderFile(step uint32) string { return fmt.Sprintf("step-%d.order", step) }

// StepRecordFile returns the name of the record of a step.
func StepRecordFile(step uint32) string { return fmt.Sprintf("step-%d.exit", step) }

// StepSignalFile returns the name of the file of a signal of a step. The ID tells signals apart.
func StepSignalFile(step uint32, id uint64, signal int32) string {
	return fmt.Sprintf("step-%d.signal-%d-%d", step, id, signal)
}

// Exit statuses of ginit if the program was never executed. They have a meaning only with a Record
// that has a LaunchError.
const (
	ExitOrder   = 116 // the order cannot be read, or the task was started before
	ExitWorkDir = 117 // the working directory cannot be entered
	ExitOutput  = 118 // an output file cannot be opened
	ExitExec    = 119 // the program cannot be executed
	ExitInput   = 120 // the input file cannot be opened
)

// ErrBadFile means that a file is not an order or a record.
var ErrBadFile = errors.New("not a ginit file")

// Order is the input of ginit.
type Order struct {
	// Confine installs the seccomp filter for the program.
	Confine bool `json:"confine,omitempty"`
	// Become runs the program as UID, GID and Groups; otherwise it runs as the user of ginit.
	Become   bool     `json:"become,omitempty"`
	UID      uint32   `json:"uid,omitempty"`
	GID      uint32   `json:"gid,omitempty"`
	Groups   []uint32 `json:"groups,omitempty"`
	Args     []string `json:"args,omitempty"`
	Hold     bool     `json:"hold,omitempty"`  // run no program: keep the task for its steps until SIGTERM
	Stepd    string   `json:"stepd,omitempty"` // path of the program that runs a step
	Env      []string `json:"env,omitempty"`
	WorkDir  string   `json:"workdir,omitempty"` // empty: that of ginit
	Stdin    string   `json:"stdin,omitempty"`   // empty: /dev/null
	Stdout   string   `json:"stdout,omitempty"`
	Stderr   string   `json:"stderr,omitempty"`
	Append   bool     `json:"append,omitempty"`
	Umask    uint32   `json:"umask"`
	Subreap  bool     `json:"subreap,omitempty"`   // not PID 1: adopt and kill orphaned descendants at the end
	ScriptIs string   `json:"script_is,omitempty"` // name of Args[0] in messages
	Group    string   `json:"group,omitempty"`     // path at which the task sees its version 2 control group
}

// Record describes how the task ended.
type Record struct {
	Code        int    `json:"code"`
	Signal      int    `json:"signal,omitempty"`
	LaunchError string `json:"launch_error,omitempty"`
	Started     int64  `json:"started,omitempty"` // nanoseconds since 1970; 0: never executed
	Ended       int64  `json:"ended"`
	MaxRSS      uint64 `json:"max_rss,omitempty"`   // bytes, of the largest process, or of all with a control group
	CPU         int64  `json:"cpu,omitempty"`       // nanoseconds, user and system, of all reaped processes
	User        int64  `json:"user,omitempty"`      // user part of CPU
	OOMKills    uint64 `json:"oom_kills,omitempty"` // processes killed for memory, with a control group
	Measured    bool   `json:"measured,omitempty"`  // the previous four come from the control group
}

// Duration returns the running time of the program; 0 if it never ran.
func (r Record) Duration() time.Duration {
	if r.Started == 0 || r.Ended < r.Started {
		return 0
	}
	return time.Duration(r.Ended - r.Started)
}

// EncodeOrder encodes an Order for DecodeOrder.
func EncodeOrder(o Order) ([]byte, error) { return json.Marshal(o) }

// DecodeOrder decodes an Order. ErrBadFile if it has no program.
func DecodeOrder(data []byte) (Order, error) {
	var o Order
	if err := json.Unmarshal(data, &o); err != nil {
		return Order{}, fmt.Errorf("order: %w: %w", ErrBadFile, err)
	}
	if !o.Hold && (len(o.Args) == 0 || o.Args[0] == "") {
		return Order{}, fmt.Errorf("order: no program: %w", ErrBadFile)
	}
	return o, nil
}

// EncodeRecord encodes a Record for DecodeRecord.
func EncodeRecord(r Record) ([]byte, error) { return json.Marshal(r) }

// DecodeRecord decodes a Record and refuses impossible ones: a status outside 0 to 255, a signal
// outside 0 to 127.
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
