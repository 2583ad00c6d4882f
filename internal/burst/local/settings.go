//go:build linux

package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/greylag/greylag/internal/burst"
)

const settingsFile = "settings.json"

// Settings are the file settings.json of the state directory. Those that are absent have defaults. The program counts down
// the counters of faults in the file.
type Settings struct {
	Currency string        `json:"currency"`
	Offers   []burst.Offer `json:"offers"` // priced_at is the time of the call
	// MaxInstances is the capacity of all offers together.
	MaxInstances int `json:"max_instances"`
	// Programs is the folder of gctl and gnoded; "": that of this program.
	Programs string `json:"programs"`
	// Runtime is that of the nodes: containerd (a private one for each), process, or "" for containerd if this is root.
	Runtime string `json:"runtime"`
	// Node are lines for gnoded.toml, before its tables.
	Node string `json:"node"`
	// FirstGPU is the number of the first simulated device that instances may use.
	FirstGPU int `json:"first_gpu"`

	CapacityFailures int  `json:"capacity_failures"` // of the next launches
	LostResponses    int  `json:"lost_responses"`    // of the next launches: they have success, and end with status 75
	ThrottledCalls   int  `json:"throttled_calls"`   // of the next calls except validate
	BootSeconds      int  `json:"boot_seconds"`      // before an instance joins
	NeverJoin        bool `json:"never_join"`
	MissingGPUs      int  `json:"missing_gpus"` // that an instance has less than its offer
}

const (
	gpusOfInstance = 8
	gib            = 1 << 30
)

// defaultSettings have one spot and one on-demand offer of 8 GPUs.
func defaultSettings() Settings {
	o := burst.Offer{
		Name: "local-8", Market: "spot", Type: "local", Region: "local", Price: "20.00", CPUs: 16, MemoryBytes: 64 * gib,
		GPUs: gpusOfInstance, GPUType: "h100", GPUMemoryBytes: 80 * gib, BootSeconds: 10,
	}
	demand := o
	demand.Market, demand.Price = "on-demand", "60.00"
	return Settings{Currency: "USD", Offers: []burst.Offer{o, demand}, MaxInstances: 4}
}

func (s *store) settings() (Settings, error) {
	set := defaultSettings()
	text, err := os.ReadFile(filepath.Join(s.dir, settingsFile))
	if errors.Is(err, os.ErrNotExist) {
		return set, nil
	}
	if err != nil {
		return set, err
	}
	r := json.NewDecoder(bytes.NewReader(text))
	r.DisallowUnknownFields()
	if err := r.Decode(&set); err != nil {
		return set, fmt.Errorf("%s: %w", filepath.Join(s.dir, settingsFile), err)
	}
	return set, nil
}

func (s *store) save(set *Settings) error {
	text, err := json.MarshalIndent(set, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(s.dir, settingsFile), append(text, '\n'), 0o644)
}

// fault consumes one of a counter of faults.
func (s *store) fault(set *Settings, counter *int) (bool, error) {
	if *counter <= 0 {
		return false, nil
	}
	*counter--
	return true, s.save(set)
}

// usable returns the settings for a call that may be throttled.
func (s *store) usable() (*Settings, error) {
	set, err := s.settings()
	if err != nil {
		return nil, fail(burst.FailureInvalid, "%v", err)
	}
	throttled, err := s.fault(&set, &set.ThrottledCalls)
	if err == nil && throttled {
		err = fail(burst.FailureThrottled, "throttled_calls of %s", settingsFile)
	}
	return &set, err
}

// offer returns an offer with the present time.
func (set *Settings) offer(name, market string) (burst.Offer, bool) {
	for _, o := range set.priced() {
		if o.Name == name && o.Market == market {
			return o, true
		}
	}
	return burst.Offer{}, false
}

func (set *Settings) priced() []burst.Offer {
	now := time.Now().UTC().Truncate(time.Second)
	list := append([]burst.Offer(nil), set.Offers...)
	for i := range list {
		list[i].PricedAt = now
	}
	return list
}

// program returns the path of gctl or gnoded.
func (set *Settings) program(name string) (string, error) {
	dir := set.Programs
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		dir = filepath.Dir(self)
	}
	path := filepath.Join(dir, name)
	_, err := os.Stat(path)
	return path, err
}
