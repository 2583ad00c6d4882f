package nodes

import (
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/agent"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/metrics"
)

// compatSet is a set of GPU metrics under the names of another exporter.
type compatSet struct {
	name    string
	labels  []string
	valueOf func(node string, g *agent.GPUObservation) []string // of the labels
	metrics []alias
}

// alias is a metric of a compatSet.
type alias struct {
	name, help string
	key        string // see valueOf
	factor     float64
	family     *metrics.Family // nil until the set is enabled
}

// compatSets lists those that compat in gnoded.toml can name: dcgm-exporter up to 4.8, and the exporter
// of jobstats, whose percentages of GPM are fractions.
func compatSets() []compatSet {
	return []compatSet{{
		"dcgm", []string{"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"}, dcgmLabels, []alias{
			{"DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "busy_ratio", 100, nil},
			{"DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", "memory_used_bytes", 1.0 / (1 << 20), nil},
			{"DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", "memory_free_bytes", 1.0 / (1 << 20), nil},
			{"DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", "clock_hertz/sm", 1e-6, nil},
			{"DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", "power_watts", 1, nil},
			{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", "energy_joules_total", 1000, nil},
			{"DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", "temperature_celsius/gpu", 1, nil},
			{"DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", "last_xid", 1, nil},
			{"DCGM_FI_PROF_SM_ACTIVE", "The ratio of cycles an SM has at least 1 warp assigned.", "sm_active_ratio", 1, nil},
			{"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor pipe is active.", "tensor_active_ratio", 1, nil},
			{"DCGM_FI_PROF_DRAM_ACTIVE", "Ratio of cycles the device memory interface is active.", "dram_active_ratio", 1, nil},
			{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.", gpu.GraphicsActive, 1, nil},
		},
	}, {
		"jobstats", []string{"ordinal", "minor_number", "uuid", "name", "jobid"}, jobstatsLabels, []alias{
			{"nvidia_gpu_duty_cycle", "Percent of time over the past sample period during which one or more kernels were executing on the GPU device", "busy_ratio", 100, nil},
			{"nvidia_gpu_memory_used_bytes", "Memory used by the GPU device in bytes", "memory_used_bytes", 1, nil},
			{"nvidia_gpu_memory_total_bytes", "Total memory of the GPU device in bytes", "memory_total_bytes", 1, nil},
			{"nvidia_gpu_power_usage_milliwatts", "Power usage of the GPU device in milliwatts", "power_watts", 1000, nil},
			{"nvidia_gpu_temperature_celsius", "Temperature of the GPU device in celsius", "temperature_celsius/gpu", 1, nil},
			{"nvidia_gpu_sm_util_percent", "Percentage of SMs that were busy", "sm_active_ratio", 1, nil},
		},
	}}
}

// dcgmLabels returns the labels of dcgm-exporter, whose PCI addresses have a domain of eight digits.
func dcgmLabels(node string, g *agent.GPUObservation) []string {
	index, bus := strconv.Itoa(int(g.Index)), strings.ToUpper(g.Bus)
	if domain, rest, found := strings.Cut(bus, ":"); found && len(domain) < 8 {
		bus = strings.Repeat("0", 8-len(domain)) + domain + ":" + rest
	}
	return []string{index, g.UUID, bus, "nvidia" + index, g.Product, node}
}

func jobstatsLabels(_ string, g *agent.GPUObservation) []string {
	job := ""
	if g.Job != nil {
		job = g.Job.ID.String()
	}
	return []string{strconv.Itoa(int(g.Index)), strconv.Itoa(int(g.Minor)), g.UUID, g.Product, job}
}

// enableCompat adds the metrics of the sets with these names.
func (n *Node) enableCompat(names []string) {
	for _, d := range compatSets() {
		if !slices.Contains(names, d.name) {
			continue
		}
		for i := range d.metrics {
			m, add := &d.metrics[i], n.Gauge
			if m.key == "energy_joules_total" {
				add = n.Counter
			}
			m.family = add(m.name, m.help, d.labels...)
		}
		n.compat = append(n.compat, d)
	}
}

// putAliases adds the metrics of the enabled sets.
func (n *Node) putAliases(sink metrics.Sink, node string, g *agent.GPUObservation) {
	for _, d := range n.compat {
		labels := d.valueOf(node, g)
		for _, m := range d.metrics {
			if value, known := valueOf(g, m.key); known {
				sink.Put(m.family, value*m.factor, labels...)
			}
		}
	}
}

// valueOf returns a value of a GPU if it is known: one of gpu.Quantities by its key, or one of the names
// below.
func valueOf(g *agent.GPUObservation, key string) (value float64, known bool) {
	switch busy, used := g.Load.Busy, g.Load.Memory; {
	case key == "memory_total_bytes":
		return float64(g.Memory), true
	case key == "last_xid":
		return float64(g.LastXID), true
	case key == "busy_ratio" && busy != nil:
		return float64(*busy) / 100, true
	case key == "memory_used_bytes" && used != nil:
		return float64(*used), true
	case key == "memory_free_bytes" && used != nil:
		return float64(int64(g.Memory) - *used), true
	}
	value, known = g.Load.Values[key]
	return value, known
}
