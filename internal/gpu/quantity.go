package gpu

// Quantity is a kind of value of a device that [Load.Values] holds.
type Quantity struct {
	Name   string // of the metric without the prefix greylag_gpu_; counters end in _total
	Help   string
	Label  string   // distinguishes the values of a device; "" for a single value
	Values []string // of the label
}

// Keys returns the keys of the quantity's values in [Load.Values], by label value.
func (q Quantity) Keys() map[string]string {
	if q.Label == "" {
		return map[string]string{"": q.Name}
	}
	keys := map[string]string{}
	for _, value := range q.Values {
		keys[value] = q.Name + "/" + value
	}
	return keys
}

// GraphicsActive is the key of a value that only the metric names of DCGM include: the fraction of time
// in which a program used the graphics or compute engine.
const GraphicsActive = "graphics_active_ratio"

// Quantities lists what monitoring shows of each device in addition to its load. Package nvml reads the values
// that the driver has.
func Quantities() []Quantity {
	directions, corrections := []string{"transmit", "receive"}, []string{"corrected", "uncorrected"}
	return []Quantity{
		{"sm_active_ratio", "Fraction of the last 10 s in which a warp ran, averaged over the SMs. Hopper and later.", "", nil},
		{"sm_occupancy_ratio", "Running warps as a fraction of the maximum, averaged over the last 10 s. Hopper and later.", "", nil},
		{"tensor_active_ratio", "Fraction of the last 10 s in which the tensor cores were active. Hopper and later.", "", nil},
		{"dram_active_ratio", "Used fraction of the memory bandwidth in the last 10 s. Hopper and later.", "", nil},
		{"power_watts", "Power draw.", "", nil},
		{"energy_joules_total", "Consumed energy since the driver was loaded.", "", nil},
		{"temperature_celsius", "Temperature of the GPU or its memory.", "sensor", []string{"gpu", "memory"}},
		{"clock_hertz", "Clock of the SMs.", "clock", []string{"sm"}},
		{"throttled_seconds_total", "Time with reduced clocks, by reason.", "reason", []string{"power_cap", "sw_thermal", "hw_thermal", "power_brake"}},
		{"nvlink_bytes_total", "Bytes over NVLink, all links.", "direction", directions},
		{"pcie_bytes_total", "Bytes over PCIe since gnvml started. Hopper and later.", "direction", directions},
		{"pcie_replays_total", "PCIe replays.", "", nil},
		{"ecc_errors_total", "ECC errors since the driver was loaded.", "type", corrections},
		{"remapped_rows", "Remapped memory rows, by the errors that caused it.", "cause", corrections},
		{"remap_pending", "1 if memory rows are remapped at the next reset of the GPU.", "", nil},
		{"recovery_action", "NVML recovery action: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset.", "", nil},
	}
}
