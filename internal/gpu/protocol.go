package gpu

import (
	"encoding/json"
	"fmt"
)

// MaxLine bounds one message between the daemon and its GPU helper.
const MaxLine = 1 << 20

// Beat is how often, in seconds, the helper shows that its waiting for events
// goes round.
const Beat = 5

// Request is what the daemon asks its helper, one JSON object a line.
type Request struct {
	ID    uint64   `json:"id"`
	Op    string   `json:"op"` // "inventory", "processes" or "loads"
	UUIDs []string `json:"uuids,omitempty"`
}

// Reply is what the helper says: an answer (with the request's id), an event, or
// a beat.
type Reply struct {
	ID        uint64    `json:"id,omitempty"`
	Error     string    `json:"error,omitempty"`
	Host      *Host     `json:"host,omitempty"`
	Processes []Process `json:"processes,omitempty"`
	Loads     []Load    `json:"loads,omitempty"`
	Event     *RawEvent `json:"event,omitempty"`
	Beat      bool      `json:"beat,omitempty"`
}

// Host is what NVML says, before anything is decided about it.
type Host struct {
	Driver  string      `json:"driver,omitempty"` // "" where none is loaded
	Devices []RawDevice `json:"devices,omitempty"`
}

// RawDevice is one GPU in NVML's words.
type RawDevice struct {
	Index   int32  `json:"index"`
	UUID    string `json:"uuid"`
	Name    string `json:"name"` // "NVIDIA H100 80GB HBM3"
	Memory  int64  `json:"memory"`
	Minor   int32  `json:"minor"`
	Bus     string `json:"bus"` // PCI address as sysfs writes it, "0000:1b:00.0"
	Cluster string `json:"cluster,omitempty"`
	Clique  uint32 `json:"clique,omitempty"`
	// Links are the other ends of its NVLinks: PCI addresses of GPUs, or "switch".
	Links []string `json:"links,omitempty"`
	Bad   string   `json:"bad,omitempty"`
}

// RawEvent is one event in NVML's words.
type RawEvent struct {
	UUID string `json:"uuid,omitempty"`
	Type uint64 `json:"type"` // nvmlEventType*
	Data uint64 `json:"data"` // of an XID event: the number
}

// Encode writes a message as one line.
func Encode(message any) ([]byte, error) {
	data, err := json.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("GPU helper: %w", err)
	}
	return append(data, '\n'), nil
}

// DecodeRequest reads one line. ErrProtocol.
func DecodeRequest(line []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if r.ID == 0 || r.Op != "inventory" && r.Op != "processes" && r.Op != "loads" {
		return Request{}, fmt.Errorf("%w: request %d for %q", ErrProtocol, r.ID, r.Op)
	}
	return r, nil
}

// maxDevices bounds what a helper may claim.
const maxDevices = 1024

// DecodeReply reads one line and refuses what no helper says: an inventory out
// of order or with a device twice, numbers out of range. ErrProtocol.
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
	}
	return r, nil
}

// checkLoads refuses a device that is named twice or not at all, and numbers
// that cannot be.
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
