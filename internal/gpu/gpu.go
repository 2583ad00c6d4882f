// Package gpu provides a node's GPUs: which there are and how they are linked, what happens to them
// while jobs run, how busy they are, and which processes use one.
//
// It decides the name of a device (normalised type, NVLink domain) and whether an error is the
// application's or the hardware's. It never decides the consequences for a job or a node. It does
// not link NVIDIA's library: a call on a GPU that fell off the bus can block permanently, and a
// missing symbol ends the process. A child process (cmd/gnvml) makes the calls with deadlines, and
// is killed and restarted when it misses one.
//
// Rejected: NVML in the daemon with a goroutine for each call, since a thread that hangs in the
// driver cannot be ended, and the dynamic linker's exit ends the daemon; and parsing nvidia-smi,
// which has no events and takes 0.3 s and more for a call.
package gpu

import (
	"context"
	"errors"

	"github.com/greylag/greylag/pkg/cluster"
)

var (
	// ErrUnanswered means that the GPUs or their driver did not answer in time.
	ErrUnanswered = errors.New("GPUs do not answer")
	// ErrProtocol means that the child process sent an invalid message.
	ErrProtocol = errors.New("invalid message from the GPU helper")
)

// Provider is the source of a node's GPUs.
type Provider interface {
	// Inventory lists the devices by index. A host without a driver has none, which is no error.
	Inventory(ctx context.Context) (Inventory, error)
	// Watch calls report for each event, one at a time, until ctx ends. It returns only the error of
	// ctx: a problem of the driver is an Event or an error of Inventory.
	Watch(ctx context.Context, report func(Event)) error
	// InUse returns the users of the devices with these UUIDs. O(processes).
	InUse(ctx context.Context, uuids []string) (InUse, error)
	// Loads returns how busy devices are, how much of their memory is used, and the other values of
	// monitoring. A device may be left out if nothing is known. It gives up when ctx ends and does
	// not disturb other calls.
	Loads(ctx context.Context, held []DeviceSet) ([]Load, error)
}

// Inventory describes the devices of a node.
type Inventory struct {
	Driver  string // version; "" for none
	Devices []Device
	Common  []File // added to any device: nvidiactl, nvidia-uvm
	// Undivided is why GPUs are not divided as configured; "" if they are. See Divider.
	Undivided string
}

// Divider is a provider that can divide GPUs into MIG instances. Instances end at a reboot.
type Divider interface {
	// Divide divides those GPUs that are not yet as configured. No task may have a GPU of the node. It
	// reports whether it changed anything.
	Divide(ctx context.Context) (changed bool, err error)
}

// Device is one GPU with its device files, or one MIG instance.
type Device struct {
	cluster.GPU
	Parent   string // UUID of the GPU that this is an instance of; "" for a whole GPU
	Instance uint32 // the number of the instance in its GPU plus 1; 0 for a whole GPU
	Product  string // as its maker names it
	Files    []File
	Bus      string // PCI address; "" if unknown
	Serial   string // "" if unknown

	Lost    bool // it does not answer, or is no longer listed
	Pending bool // memory rows are set aside at its next reset
	// Recovery is what the driver asks for. Judged reports that the driver has a verdict.
	Recovery Recovery
	Judged   bool
	// Joined reports NVLinks to other GPUs without a switch between them: they are reset together.
	Joined bool
	Links  int // active NVLinks
	// Slow is why the device works below its specification, such as a PCIe link that is too narrow.
	Slow string
}

// File is a device file: its path on the host and its path in a task.
type File struct {
	Host string `json:"host"`
	Task string `json:"task"`
}

// Process is a process that uses a GPU.
type Process struct {
	UUID string `json:"uuid"`
	PID  int    `json:"pid"`
}

// InUse lists the processes that use devices, and how much memory of each is in use.
type InUse struct {
	Processes []Process
	Memory    map[string]int64 // bytes by UUID, without what the driver reserves; absent if unknown
}

// DeviceSet lists the devices of a task, or those that no task has.
type DeviceSet struct {
	UUIDs []string
	// PIDs lists the task's processes, for providers that cannot query a device; nil if unknown.
	PIDs func() ([]int, error)
}

// Load is the use of a device at one moment. nil means unknown, as some boards and parts of boards
// (MIG) report.
type Load struct {
	UUID   string `json:"uuid"`
	Busy   *int64 `json:"busy,omitempty"`   // percent of the last moments in which a program ran on it
	Memory *int64 `json:"memory,omitempty"` // bytes of its memory in use
	// Values holds the values of Quantities by key, without those that the driver does not support.
	Values map[string]float64 `json:"values,omitempty"`
}

// Event is an event of a GPU, or Count equal ones.
type Event struct {
	UUID     string // "" if the device is unknown: then the event concerns all
	Bus      string // PCI address, in events of the kernel log instead of UUID
	XID      int    // NVIDIA's error number; 0 for none
	Action   Action
	Recovery Recovery // with Judged: what the driver asks for
	Judged   bool
	Count    uint32
	Message  string // what happened, as part of a sentence
	// Instance is the number of the MIG instance that the event concerns, plus 1; 0: the whole GPU.
	Instance uint32
}

// Concerns reports whether an event concerns a device. Errors after which the GPU needs a reset concern all
// of its instances.
func (e *Event) Concerns(d *Device) bool {
	if e.UUID != "" && e.UUID != d.UUID && e.UUID != d.Parent || e.Bus != "" && e.Bus != d.Bus {
		return false
	}
	return e.Instance == 0 || d.Instance == 0 || e.Instance == d.Instance || e.Action.wholeGPU()
}

// None is the provider of a node without GPUs.
type None struct{}

// Inventory returns none.
func (None) Inventory(context.Context) (Inventory, error) { return Inventory{}, nil }

// Watch waits for ctx.
func (None) Watch(ctx context.Context, _ func(Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

// InUse returns none.
func (None) InUse(context.Context, []string) (InUse, error) { return InUse{}, nil }

// Loads returns none.
func (None) Loads(context.Context, []DeviceSet) ([]Load, error) { return nil, nil }
