//go:build !cgo || !linux

package nvml

import (
	"time"

	"github.com/greylag/greylag/internal/gpu"
)

// Linked reports whether this program can use NVIDIA's library.
const Linked = false

func open() source { return none{} }

// none is the source of a build without NVIDIA's library.
type none struct{}

func (none) inventory() (gpu.Host, error)              { return gpu.Host{}, nil }
func (none) processes([]string) ([]gpu.Process, error) { return nil, nil }
func (none) memory([]string) map[string]int64          { return nil }
func (none) loads([]string) []gpu.Load                 { return nil }
func (none) divide(map[int32][]string) (bool, error)   { return false, nil }

func (none) watch(report func(*gpu.RawEvent)) {
	for range time.Tick(gpu.Beat * time.Second) {
		report(nil)
	}
}
