package gpu

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// FaultsFile is the file in the directory of simulated GPUs that lists their injected faults, one a line:
// "INDEX FAULT" with the faults ecc (an uncorrectable memory error), remap (a memory row is remapped
// at the next reset), throttle (overheating), lost (the device does not answer), xidN (the error N
// occurs, once for each line that appears), recoveryN (the driver's recovery action), memoryN (N MiB of
// its memory stay in use without a process) and undivided (the GPU of that number cannot be divided into MIG
// instances). It is read at each query.
const FaultsFile = "faults"

// simulatedFault is a line of FaultsFile.
type simulatedFault struct{ index, fault string }

// readFaults returns the injected faults; none without a file.
func readFaults(dir string) map[simulatedFault]bool {
	faults := map[simulatedFault]bool{}
	text, _ := os.ReadFile(filepath.Join(dir, FaultsFile)) // it need not exist
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 {
			faults[simulatedFault{words[0], words[1]}] = true
		}
	}
	return faults
}

// simulatedState is what a simulated device does.
type simulatedState struct{ busy, ecc, remap, throttle bool }

// gauges returns the values at one moment.
func (s simulatedState) gauges() map[string]float64 {
	watts, celsius, clock := 70.0, 30.0, 345e6
	if s.busy {
		watts, celsius, clock = 500, 60, 1980e6
	}
	if s.throttle {
		watts, celsius, clock = 300, 90, 600e6
	}
	on := func(state bool, value float64) float64 {
		if state {
			return value
		}
		return 0
	}
	return map[string]float64{
		GraphicsActive: on(s.busy, 1), "sm_active_ratio": on(s.busy, 0.8), "sm_occupancy_ratio": on(s.busy, 0.4),
		"tensor_active_ratio": on(s.busy, 0.5), "dram_active_ratio": on(s.busy, 0.3),
		"power_watts": watts, "temperature_celsius/gpu": celsius, "temperature_celsius/memory": celsius + 5, "clock_hertz/sm": clock,
		"pcie_replays_total": 0, "ecc_errors_total/corrected": 0, "ecc_errors_total/uncorrected": on(s.ecc, 1),
		"remapped_rows/corrected": 0, "remapped_rows/uncorrected": on(s.remap, 1), "remap_pending": on(s.remap, 1), "recovery_action": on(s.remap, 1),
	}
}

// rates returns by how much the counters grow in a second.
func (s simulatedState) rates() map[string]float64 {
	rates := map[string]float64{
		"energy_joules_total": s.gauges()["power_watts"], "throttled_seconds_total/power_cap": 0, "throttled_seconds_total/sw_thermal": 0,
		"throttled_seconds_total/hw_thermal": 0, "throttled_seconds_total/power_brake": 0,
		"nvlink_bytes_total/transmit": 0, "nvlink_bytes_total/receive": 0, "pcie_bytes_total/transmit": 0, "pcie_bytes_total/receive": 0,
	}
	if s.busy {
		rates["nvlink_bytes_total/transmit"], rates["nvlink_bytes_total/receive"] = 100e9, 100e9
		rates["pcie_bytes_total/transmit"], rates["pcie_bytes_total/receive"] = 1e9, 2e9
	}
	if s.throttle {
		rates["throttled_seconds_total/hw_thermal"] = 1
	}
	return rates
}

// simulatedCounters are the counters of a device.
type simulatedCounters struct {
	at     time.Time
	totals map[string]float64
}

// values returns all values of a device in state. Counters begin at the first query. The caller holds the
// lock.
func (s *Simulated) values(uuid string, state simulatedState) map[string]float64 {
	now, c := time.Now(), s.counters[uuid]
	if c == nil {
		c = &simulatedCounters{now, map[string]float64{}}
		s.counters[uuid] = c
	}
	for key, rate := range state.rates() {
		c.totals[key] += rate * now.Sub(c.at).Seconds()
	}
	c.at = now
	all := state.gauges()
	maps.Copy(all, c.totals)
	return all
}
