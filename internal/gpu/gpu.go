// Package gpu knows a node's GPUs: which there are and how they hang together,
// what happens to them while jobs run, how busy they are, and who still uses one
// after its job.
//
// It decides what a device is called (normalised type, NVLink domain) and
// whether an error is the application's or the hardware's. It never decides
// what happens to a job or a node for it. NVIDIA's library is not linked here:
// a call into it on a GPU that fell off the bus can block for ever, and a
// missing symbol ends the process, so a child process (cmd/gnvml) makes the
// calls, with deadlines, and is killed and started again when it misses one.
//
// Rejected: NVML in the daemon with a goroutine a call (a thread that hangs in
// the driver cannot be ended, and the dynamic linker's exit takes the daemon
// along), and parsing nvidia-smi (no events, 0.3 s and more a call).
package gpu

import (
	"context"
	"errors"

	"github.com/greylag/greylag/pkg/cluster"
)

var (
	// ErrUnanswered says that the GPUs or their driver did not answer in time.
	ErrUnanswered = errors.New("GPUs do not answer")
	// ErrProtocol says that the child process said what it must not.
	ErrProtocol = errors.New("unexpected words from the GPU helper")
)

// Provider is where a node's GPUs come from.
type Provider interface {
	// Inventory lists the devices, by index. A host without a driver has none,
	// which is no error.
	Inventory(ctx context.Context) (Inventory, error)
	// Watch calls heard for every event, one at a time, until the context
	// ends. It returns the context's error alone: trouble with the driver is
	// an Event or an error of Inventory.
	Watch(ctx context.Context, heard func(Event)) error
	// Processes lists who uses the devices with these UUIDs. O(processes).
	Processes(ctx context.Context, uuids []string) ([]Process, error)
	// Loads tells how busy devices are that tasks have, and what their memory
	// holds. A device of which neither is known may be left out. It gives up
	// with the context, and harms nothing that others ask.
	Loads(ctx context.Context, held []Held) ([]Load, error)
}

// Inventory is what a node has.
type Inventory struct {
	Driver  string // version; "" where there is none
	Devices []Device
	Common  []File // come with any device: nvidiactl, nvidia-uvm
}

// Device is one GPU with its device files.
type Device struct {
	cluster.GPU
	Files []File
}

// File is a device file: where it is on the host, and where a task sees it.
type File struct {
	Host string `json:"host"`
	Task string `json:"task"`
}

// Process is one user of a GPU.
type Process struct {
	UUID string `json:"uuid"`
	PID  int    `json:"pid"`
}

// Held are the devices that a task has.
type Held struct {
	UUIDs []string
	// PIDs lists the task's processes, for who cannot ask a device; nil where
	// they cannot be listed.
	PIDs func() ([]int, error)
}

// Load is how a device is used at one moment. What is nil is not known, which a
// board or a part of one (MIG) may say of itself.
type Load struct {
	UUID   string `json:"uuid"`
	Busy   *int64 `json:"busy,omitempty"`   // percent of the last moments in which something ran on it
	Memory *int64 `json:"memory,omitempty"` // bytes that are taken of its memory
}

// Event is something that happened to a GPU.
type Event struct {
	UUID     string // "" where the device is not known: then it concerns all
	XID      int    // NVIDIA's error number, 0 where it has none
	Severity Severity
	Message  string // one sentence for people
}

// Severity says what an event means for the device.
type Severity uint8

// The severities.
const (
	// Notice is worth telling the job that runs on the device.
	Notice Severity = iota
	// Degraded devices get no new jobs; what runs may go on.
	Degraded
	// Broken devices do not work any more; what runs on them is ended.
	Broken
	// Healed takes an earlier Degraded back, after a driver's reset.
	Healed
)

// None is the provider of a node without GPUs.
type None struct{}

// Inventory is empty.
func (None) Inventory(context.Context) (Inventory, error) { return Inventory{}, nil }

// Watch waits.
func (None) Watch(ctx context.Context, _ func(Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

// Processes finds nobody.
func (None) Processes(context.Context, []string) ([]Process, error) { return nil, nil }

// Loads knows of none.
func (None) Loads(context.Context, []Held) ([]Load, error) { return nil, nil }
