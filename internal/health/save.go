package health

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// savedFile is the content of the file of a node's health.
type savedFile struct {
	Boot string    `json:"boot"`
	GPUs savedGPUs `json:"gpus"`
}

// Load reads the health of GPUs that was saved in the same boot of the kernel. A missing file, one of
// another boot and a damaged one mean healthy GPUs: a reboot resets them.
func Load(path, boot string) *GPUs {
	g := NewGPUs()
	data, err := os.ReadFile(path)
	var saved savedFile
	if err != nil || json.Unmarshal(data, &saved) != nil || saved.Boot != boot || saved.GPUs.Devices == nil {
		return g
	}
	for uuid, d := range saved.GPUs.Devices {
		if d == nil {
			delete(saved.GPUs.Devices, uuid)
		}
	}
	g.saved = saved.GPUs
	return g
}

// Save writes the health of GPUs atomically.
func (g *GPUs) Save(path, boot string) error {
	data, err := json.MarshalIndent(savedFile{boot, g.saved}, "", "\t")
	if err != nil {
		return fmt.Errorf("save the health of the GPUs: %w", err)
	}
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("save the health of the GPUs: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("save the health of the GPUs: %w", err)
	}
	return nil
}
