//go:build cgo && linux

package nvml

import (
	"encoding/binary"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/greylag/greylag/internal/gpu"
)

// values holds what a device reported at one time.
type values struct {
	at   time.Time
	last map[string]float64 // by key of gpu.Quantities
}

// group is a set of values that are read together.
type group struct {
	every time.Duration
	read  func(*library, *known, time.Time, map[string]float64)
}

// groups lists the values that are read less often than the load. Calls share a lock of the driver with
// the programs on its GPUs.
func groups() [2]group {
	return [2]group{
		{10 * time.Second, (*library).readFast},
		{30 * time.Second, (*library).readSlow},
	}
}

// early is how much before its time a group is read, as requests do not arrive exactly on time.
const early = time.Second

// measure returns the last values of a device, after it has read those that are due.
func (l *library) measure(at *known, now time.Time) map[string]float64 {
	all := map[string]float64{}
	for i, g := range groups() {
		if v := &at.values[i]; v.last == nil || now.Sub(v.at) >= g.every-early {
			*v = values{now, map[string]float64{}}
			g.read(l, at, now, v.last)
		}
		maps.Copy(all, at.values[i].last)
	}
	return all
}

func (l *library) readFast(at *known, now time.Time, into map[string]float64) {
	number := func(key, symbol string, factor float64, read func() (uint32, nvml.Return)) {
		if !l.has(symbol) {
			return
		}
		if n, ret := read(); ret == nvml.SUCCESS {
			into[key] = float64(n) * factor
		}
	}
	number("power_watts", "nvmlDeviceGetPowerUsage", 1e-3, at.device.GetPowerUsage)
	number("temperature_celsius/gpu", "nvmlDeviceGetTemperature", 1, func() (uint32, nvml.Return) {
		return at.device.GetTemperature(nvml.TEMPERATURE_GPU)
	})
	number("clock_hertz/sm", "nvmlDeviceGetClockInfo", 1e6, func() (uint32, nvml.Return) {
		return at.device.GetClockInfo(nvml.CLOCK_SM)
	})
	l.readFields(at.device, fastFields(), into)
	l.readProfile(at, now, into)
}

func (l *library) readSlow(at *known, _ time.Time, into map[string]float64) {
	fields := slowFields()
	if len(at.raw.Links) > 0 && at.profile.samples[0] == nil { // else the profile has the traffic
		const all = math.MaxUint32 // links
		fields = append(fields,
			field{"nvlink_bytes_total/transmit", nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, all, 1024},
			field{"nvlink_bytes_total/receive", nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, all, 1024})
	}
	l.readFields(at.device, fields, into)
}

// field is a value that GetFieldValues returns.
type field struct {
	key    string
	id     uint32
	scope  uint32
	factor float64 // to the unit of the key
}

// fastFields lists fields that are read every 10 s. The first supported field of a key counts: drivers
// before 570 have one counter for all thermal reasons.
func fastFields() []field {
	return []field{
		{"energy_joules_total", nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0, 1e-3},
		{"temperature_celsius/memory", nvml.FI_DEV_MEMORY_TEMP, 0, 1},
		{"throttled_seconds_total/power_cap", nvml.FI_DEV_PERF_POLICY_POWER, 0, 1e-9},
		{"throttled_seconds_total/sw_thermal", nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, 0, 1e-9},
		{"throttled_seconds_total/sw_thermal", nvml.FI_DEV_PERF_POLICY_THERMAL, 0, 1e-9},
		{"throttled_seconds_total/hw_thermal", nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, 0, 1e-9},
		{"throttled_seconds_total/power_brake", nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, 0, 1e-9},
	}
}

// slowFields lists fields that are read every 30 s.
func slowFields() []field {
	return []field{
		{"pcie_replays_total", nvml.FI_DEV_PCIE_REPLAY_COUNTER, 0, 1},
		{"ecc_errors_total/corrected", nvml.FI_DEV_ECC_SBE_VOL_TOTAL, 0, 1},
		{"ecc_errors_total/uncorrected", nvml.FI_DEV_ECC_DBE_VOL_TOTAL, 0, 1},
		{"remapped_rows/corrected", nvml.FI_DEV_REMAPPED_COR, 0, 1},
		{"remapped_rows/uncorrected", nvml.FI_DEV_REMAPPED_UNC, 0, 1},
		{"remap_pending", nvml.FI_DEV_REMAPPED_PENDING, 0, 1},
		{"recovery_action", nvml.FI_DEV_GET_GPU_RECOVERY_ACTION, 0, 1},
	}
}

// readFields reads fields in one call.
func (l *library) readFields(device nvml.Device, fields []field, into map[string]float64) {
	if !l.has("nvmlDeviceGetFieldValues") {
		return
	}
	answers := make([]nvml.FieldValue, len(fields))
	for i, f := range fields {
		answers[i].FieldId, answers[i].ScopeId = f.id, f.scope
	}
	if device.GetFieldValues(answers) != nvml.SUCCESS {
		return
	}
	for i, f := range fields {
		n, known := number(answers[i])
		_, set := into[f.key]
		// Some boards without a sensor report 0 °C.
		if known && !set && (n != 0 || !strings.HasPrefix(f.key, "temperature")) {
			into[f.key] = n * f.factor
		}
	}
}

// number returns the value of a field if the driver has it.
func number(v nvml.FieldValue) (n float64, known bool) {
	if nvml.Return(v.NvmlReturn) != nvml.SUCCESS {
		return 0, false
	}
	short, word := binary.NativeEndian.Uint16(v.Value[:]), binary.NativeEndian.Uint32(v.Value[:])
	long := binary.NativeEndian.Uint64(v.Value[:])
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		n = math.Float64frombits(long)
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		n = float64(word)
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		n = float64(long)
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		n = float64(int64(long))
	case nvml.VALUE_TYPE_SIGNED_INT:
		n = float64(int32(word))
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		n = float64(short)
	default:
		return 0, false
	}
	return n, finite(n)
}

func finite(n float64) bool { return !math.IsNaN(n) && !math.IsInf(n, 0) }

// profile is the state of GPM, NVIDIA's profile of a device since Hopper. It has samples only while the
// device supports GPM. Two threads that call GPM at one time can crash the kernel: the caller holds
// the lock of the library.
type profile struct {
	samples [2]nvml.GpmSample // the last, and the one before
	at      time.Time         // of the last; zero: none
	traffic map[string]float64
}

// metric is a value that GPM returns.
type metric struct {
	key string
	id  nvml.GpmMetricId
}

// ratios lists metrics in percent.
func ratios() []metric {
	return []metric{
		{gpu.GraphicsActive, nvml.GPM_METRIC_GRAPHICS_UTIL},
		{"sm_active_ratio", nvml.GPM_METRIC_SM_UTIL},
		{"sm_occupancy_ratio", nvml.GPM_METRIC_SM_OCCUPANCY},
		{"tensor_active_ratio", nvml.GPM_METRIC_ANY_TENSOR_UTIL},
		{"dram_active_ratio", nvml.GPM_METRIC_DRAM_BW_UTIL},
	}
}

// traffic lists metrics in MiB/s. The fields for PCIe have 32 bits and overflow between two reads.
func (at *known) traffic() []metric {
	list := []metric{
		{"pcie_bytes_total/transmit", nvml.GPM_METRIC_PCIE_TX_PER_SEC},
		{"pcie_bytes_total/receive", nvml.GPM_METRIC_PCIE_RX_PER_SEC},
	}
	if len(at.raw.Links) > 0 {
		list = append(list,
			metric{"nvlink_bytes_total/transmit", nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC},
			metric{"nvlink_bytes_total/receive", nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC})
	}
	return list
}

// readProfile takes a sample and returns the averages since the previous one.
func (l *library) readProfile(at *known, now time.Time, into map[string]float64) {
	p := &at.profile
	if !l.profiles(at.device) {
		*p = profile{} // samples are small, and this happens when MIG is enabled
		return
	}
	for i := range p.samples {
		if p.samples[i] == nil {
			sample, ret := l.lib.GpmSampleAlloc()
			if ret != nvml.SUCCESS {
				*p = profile{}
				return
			}
			p.samples[i] = sample
		}
	}
	p.samples[0], p.samples[1] = p.samples[1], p.samples[0]
	previous := p.at
	p.at = time.Time{}
	if l.lib.GpmSampleGet(at.device, p.samples[0]) != nvml.SUCCESS {
		return
	}
	p.at = now
	if !previous.IsZero() {
		l.compare(at, now.Sub(previous), into)
	}
}

// profiles reports whether a device supports GPM now. With MIG only its parts do.
func (l *library) profiles(device nvml.Device) bool {
	for _, symbol := range []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"} {
		if !l.has(symbol) {
			return false
		}
	}
	if l.has("nvmlDeviceGetMigMode") {
		if mode, _, ret := device.GetMigMode(); ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE {
			return false
		}
	}
	support, ret := l.lib.GpmQueryDeviceSupport(device)
	return ret == nvml.SUCCESS && support.IsSupportedDevice != 0
}

// compare returns the metrics between the two samples, which were taken that long apart.
func (l *library) compare(at *known, apart time.Duration, into map[string]float64) {
	p, ratios, traffic := &at.profile, ratios(), at.traffic()
	request := nvml.GpmMetricsGetType{NumMetrics: uint32(len(ratios) + len(traffic)), Sample1: p.samples[1], Sample2: p.samples[0]}
	for i, m := range append(ratios, traffic...) {
		request.Metrics[i].MetricId = uint32(m.id)
	}
	if l.lib.GpmMetricsGet(&request) != nvml.SUCCESS {
		return
	}
	value := func(i int) (float64, bool) {
		m := request.Metrics[i]
		return m.Value, nvml.Return(m.NvmlReturn) == nvml.SUCCESS && finite(m.Value) && m.Value >= 0
	}
	for i, m := range ratios {
		if percent, known := value(i); known {
			into[m.key] = min(percent, 100) / 100
		}
	}
	if p.traffic == nil {
		p.traffic = map[string]float64{}
	}
	for i, m := range traffic {
		if rate, known := value(len(ratios) + i); known {
			p.traffic[m.key] += rate * (1 << 20) * apart.Seconds()
		}
	}
	maps.Copy(into, p.traffic)
}
