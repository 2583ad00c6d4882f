package gpu

import (
	"encoding/json"
	"fmt"
)

// MaxLine is the maximum size of one message between the daemon and its GPU helper.
const MaxLine = 1 << 20

// Beat is the interval in seconds at which the helper shows that its event loop works.
const Beat = 5

// Request is a request of the daemon to its helper, one JSON object a line.
type Request struct {
	ID    uint64   `json:"id"`
	Op    string   `json:"op"` // "inventory", "processes", "loads" or "divide"
	UUIDs []string `json:"uuids,omitempty"`
	// Layouts are the MIG profiles of GPUs by index, for "divide".
	Layouts map[int32][]string `json:"layouts,omitempty"`
}

// Reply is a message of the helper: an answer (with the ID of the request), an event, or a
// heartbeat.
type Reply struct {
	ID        uint64    `json:"id,omitempty"`
	Error     string    `json:"error,omitempty"`
	Host      *Host     `json:"host,omitempty"`
	Processes []Process `json:"processes,omitempty"`
	Loads     []Load    `json:"loads,omitempty"`
	Event     *RawEvent `json:"event,omitempty"`
	Beat      bool      `json:"beat,omitempty"`
	// Memory is InUse.Memory, in an answer with Processes.
	Memory  map[string]int64 `json:"memory,omitempty"`
	Changed bool             `json:"changed,omitempty"` // GPUs were divided
}

// Host holds NVML's data before any decision about it.
type Host struct {
	Driver  string      `json:"driver,omitempty"` // "" if none is loaded
	Devices []RawDevice `json:"devices,omitempty"`
}

// RawDevice is one GPU as NVML describes it.
type RawDevice struct {
	Index   int32  `json:"index"`
	UUID    string `json:"uuid"`
	Name    string `json:"name"` // "NVIDIA H100 80GB HBM3"
	Memory  int64  `json:"memory"`
	Minor   int32  `json:"minor"`
	Bus     string `json:"bus"` // PCI address as sysfs writes it, "0000:1b:00.0"
	Cluster string `json:"cluster,omitempty"`
	Clique  uint32 `json:"clique,omitempty"`
	// Links lists the other ends of its NVLinks: PCI addresses of GPUs, or "switch".
	Links  []string `json:"links,omitempty"`
	Bad    string   `json:"bad,omitempty"`
	Serial string   `json:"serial,omitempty"`
	Lost   bool     `json:"lost,omitempty"`
	// Pending reports that row remapping is pending: a reset applies it.
	Pending bool `json:"pending,omitempty"`
	// Recovery is the driver's recovery action; absent if the driver has none.
	Recovery *Recovery `json:"recovery,omitempty"`
	Slow     string    `json:"slow,omitempty"`
	// MIG reports that the GPU is in MIG mode: programs use only its instances.
	MIG       bool          `json:"mig,omitempty"`
	Instances []RawInstance `json:"instances,omitempty"`
}

// RawInstance is one MIG instance as NVML describes it.
type RawInstance struct {
	UUID    string `json:"uuid"`
	Profile string `json:"profile"` // "1g.10gb"
	Memory  int64  `json:"memory"`
	GPU     uint32 `json:"gpu"`     // number of the GPU instance
	Compute uint32 `json:"compute"` // number of the compute instance in it
}

// RawEvent is one event as NVML describes it.
type RawEvent struct {
	UUID string `json:"uuid,omitempty"`
	Type uint64 `json:"type"` // nvmlEventType*
	Data uint64 `json:"data"` // XID events: the number
	// Count is the number of equal events since the last message about them; 0 means 1.
	Count uint32 `json:"count,omitempty"`
	// Instance is the number of the GPU instance plus 1; 0 for none.
	Instance uint32 `json:"instance,omitempty"`
}

// Encode encodes a message as one line.
func Encode(message any) ([]byte, error) {
	data, err := json.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("GPU helper: %w", err)
	}
	return append(data, '\n'), nil
}

// DecodeRequest decodes one line. Errors wrap ErrProtocol.
func DecodeRequest(line []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if r.ID == 0 || r.Op != "inventory" && r.Op != "processes" && r.Op != "loads" && r.Op != "divide" {
		return Request{}, fmt.Errorf("%w: request %d for %q", ErrProtocol, r.ID, r.Op)
	}
	return r, nil
}

// maxDevices limits the devices of an inventory.
const maxDevices = 1024

// maxInstance limits the numbers of MIG instances.
const maxInstance = 1 << 16

// DecodeReply decodes one line and refuses invalid content: an inventory out of order or with a
// duplicate, numbers out of range. Errors wrap ErrProtocol.
func DecodeReply(line []byte) (Reply, error) {
	var r Reply
	if err := json.Unmarshal(line, &r); err != nil {
		return Reply{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if err := checkLoads(r.Loads); err != nil {
		return Reply{}, err
	}
	if r.Host == nil {
		return r, nil
	}
	if len(r.Host.Devices) > maxDevices {
		return Reply{}, fmt.Errorf("%w: %d devices", ErrProtocol, len(r.Host.Devices))
	}
	seen := map[string]bool{}
	for i, d := range r.Host.Devices {
		if int(d.Index) != i || d.UUID == "" || seen[d.UUID] || d.Memory < 0 || d.Minor < -1 {
			return Reply{}, fmt.Errorf("%w: device %d is %+v", ErrProtocol, i, d)
		}
		seen[d.UUID] = true
		for _, x := range d.Instances {
			if x.UUID == "" || seen[x.UUID] || x.Profile == "" || x.Memory < 0 || x.GPU > maxInstance || x.Compute > maxInstance {
				return Reply{}, fmt.Errorf("%w: instance of device %d is %+v", ErrProtocol, i, x)
			}
			seen[x.UUID] = true
		}
	}
	return r, nil
}

// checkLoads refuses unnamed and duplicate devices, and impossible numbers.
func checkLoads(loads []Load) error {
	if len(loads) > maxDevices {
		return fmt.Errorf("%w: loads of %d devices", ErrProtocol, len(loads))
	}
	seen := map[string]bool{}
	for _, l := range loads {
		if l.UUID == "" || seen[l.UUID] || l.Busy != nil && (*l.Busy < 0 || *l.Busy > 100) || l.Memory != nil && *l.Memory < 0 {
			return fmt.Errorf("%w: load of device %q", ErrProtocol, l.UUID)
		}
		seen[l.UUID] = true
	}
	return nil
}
