package health

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/greylag/greylag/pkg/cluster"
)

// Saved is what a restart of the daemon preserves, until the node reboots: a reboot resets GPUs and
// begins all checks again.
type Saved struct {
	Boot string
	GPUs *GPUs
	// Conditions are those of the node's other checks, and Ports the InfiniBand ports that were active.
	Conditions []cluster.Condition
	Ports      []string
	// Users are GPUs, by UUID, that were still in use after a job.
	Users map[string]Use
	// Repaired are conditions that have ended, but still drain the node until the validation program has a result.
	Repaired []cluster.Condition
	// Untested are GPUs, by UUID, that were reset and have not passed the validation since, with the fault that they
	// have until then.
	Untested map[string]string
}

// Use is why a GPU is out of service after a job that used it: something still does.
type Use struct {
	Why    string         `json:"why"`
	Repair cluster.Repair `json:"repair,omitempty"`
}

// savedFile is the content of the file.
type savedFile struct {
	Boot       string              `json:"boot"`
	GPUs       savedGPUs           `json:"gpus"`
	Conditions []cluster.Condition `json:"conditions,omitempty"`
	Ports      []string            `json:"ports,omitempty"`
	Users      map[string]Use      `json:"users,omitempty"`
	Repaired   []cluster.Condition `json:"repaired,omitempty"`
	Untested   map[string]string   `json:"untested,omitempty"`
}

// Load reads what was saved in the same boot of the kernel, and reports whether there was any. A missing
// file, one of another boot and a damaged one mean a healthy node.
func Load(path, boot string) (Saved, bool) {
	none := Saved{Boot: boot, GPUs: NewGPUs()}
	data, err := os.ReadFile(path)
	var file savedFile
	if err != nil || json.Unmarshal(data, &file) != nil || file.Boot != boot || file.GPUs.Devices == nil {
		return none, false
	}
	for uuid, d := range file.GPUs.Devices {
		if d == nil {
			delete(file.GPUs.Devices, uuid)
		}
	}
	return Saved{boot, &GPUs{file.GPUs}, file.Conditions, file.Ports, file.Users, file.Repaired, file.Untested}, true
}

// Save writes the file atomically.
func (s Saved) Save(path string) error {
	data, err := json.MarshalIndent(savedFile{s.Boot, s.GPUs.saved, s.Conditions, s.Ports, s.Users, s.Repaired, s.Untested}, "", "\t")
	if err != nil {
		return fmt.Errorf("save the health of the node: %w", err)
	}
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("save the health of the node: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("save the health of the node: %w", err)
	}
	return nil
}
