// Package nodes has the metrics and the health of a node's daemon.
//
// A node does not listen on the network by default: it writes its metrics to a file for
// node_exporter, and answers health checks on a Unix socket. No value is measured for a scrape;
// the daemon polls GPUs on its own clock.
package nodes

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/greylag/greylag/internal/agent"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/version"
)

// pollSeconds are the bounds of the duration of a poll of the GPUs.
var pollSeconds = []float64{0.001, 0.01, 0.1, 0.5, 1, 5}

// observeTimeout is how long a scrape waits for the daemon's loop.
const observeTimeout = 5 * time.Second

// Node collects the metrics of a node. It implements agent.Observer.
type Node struct {
	metrics.Families
	observe  func(context.Context) (agent.Observation, error)
	expires  func() time.Time
	polls    prometheus.Histogram
	failures prometheus.Counter

	info, reported, reportErrors, tasks, ends, restarts   *metrics.Family
	timeouts                                              *metrics.Family
	gpu, job, busy, used, total, xids, healthy            *metrics.Family
	taskCPU, taskMemory, taskPeak, taskLimit, certificate *metrics.Family

	quantities []quantity
	compat     []compatSet
}

// quantity is a gpu.Quantity with its metric.
type quantity struct {
	gpu.Quantity
	family *metrics.Family
}

// New returns a collector without a daemon; see [Node.Follow]. compat names the other exporters under whose
// names it also shows the metrics of GPUs.
func New(compat ...string) *Node {
	n := &Node{
		polls: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "greylag_gpu_poll_duration_seconds", Help: "Duration of GPU queries.", Buckets: pollSeconds,
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "greylag_gpu_poll_failures_total", Help: "GPU queries that failed or timed out.",
		}),
	}
	n.info = n.Gauge("greylag_node_info", "The node; always 1.", "node", "version", "driver")
	n.reported = n.Gauge("greylag_node_report_timestamp_seconds", "When the controllers accepted the last report of the node.")
	n.reportErrors = n.Counter("greylag_node_report_errors_total", "Reports to the controllers that failed since gnoded started.")
	n.tasks = n.Gauge("greylag_node_tasks", "Tasks on the node, by phase.", "phase")
	n.ends = n.Counter("greylag_node_task_ends_total", "Tasks that ended since gnoded started, by cause.", "cause")
	n.restarts = n.Counter("greylag_gpu_helper_restarts_total", "Restarts of gnvml, the program that calls NVML.")
	n.timeouts = n.Counter("greylag_node_health_program_timeouts_total", "Runs of the health program that were killed since gnoded started.")
	n.gpu = n.Gauge("greylag_gpu_info", "A GPU of the node; always 1.", "gpu", "uuid", "model", "pci", "domain")
	n.job = n.Gauge("greylag_gpu_job_info", "The job to which a GPU is allocated; always 1.", "gpu", "job_id", "attempt", "account", "partition")
	n.busy = n.Gauge("greylag_gpu_busy_ratio", "GPU utilization as NVML reports it: fraction of the sampling period in which a kernel ran.", "gpu")
	n.used = n.Gauge("greylag_gpu_memory_used_bytes", "Used memory of the GPU.", "gpu")
	n.total = n.Gauge("greylag_gpu_memory_total_bytes", "Total memory of the GPU.", "gpu")
	n.xids = n.Counter("greylag_gpu_xid_events_total", "XID events since gnoded started, by class of the fault.", "gpu", "xid", "class")
	n.healthy = n.Gauge("greylag_gpu_healthy", "0 if the GPU takes no jobs because of a fault.", "gpu")
	n.taskCPU = n.Counter("greylag_task_cpu_seconds_total", "CPU time of a running task.", "job_id")
	n.taskMemory = n.Gauge("greylag_task_memory_bytes", "Used memory of a running task.", "job_id")
	n.taskLimit = n.Gauge("greylag_task_memory_limit_bytes", "Memory limit of a running task.", "job_id")
	n.taskPeak = n.Gauge("greylag_task_memory_peak_bytes", "Peak memory of a running task.", "job_id")
	for _, q := range gpu.Quantities() {
		add, labels := n.Gauge, []string{"gpu"}
		if strings.HasSuffix(q.Name, "_total") {
			add = n.Counter
		}
		if q.Label != "" {
			labels = append(labels, q.Label)
		}
		n.quantities = append(n.quantities, quantity{q, add("greylag_gpu_"+q.Name, q.Help, labels...)})
	}
	n.certificate = n.Gauge("greylag_certificate_expiry_timestamp_seconds", "When the certificate of this node expires.")
	n.enableCompat(compat)
	return n
}

// Follow sets the daemon to observe, and when its certificate ends. It must be called before anything
// is collected.
func (n *Node) Follow(observe func(context.Context) (agent.Observation, error), expires func() time.Time) {
	n.observe, n.expires = observe, expires
}

// Polled implements agent.Observer.
func (n *Node) Polled(took time.Duration, failed bool) {
	n.polls.Observe(took.Seconds())
	if failed {
		n.failures.Inc()
	}
}

// Describe implements prometheus.Collector.
func (n *Node) Describe(out chan<- *prometheus.Desc) {
	n.Families.Describe(out)
	n.polls.Describe(out)
	n.failures.Describe(out)
}

// Collect implements prometheus.Collector.
func (n *Node) Collect(out chan<- prometheus.Metric) {
	n.polls.Collect(out)
	n.failures.Collect(out)
	sink := metrics.Sink(out)
	sink.PutTime(n.certificate, n.expires())
	ctx, cancel := context.WithTimeout(context.Background(), observeTimeout)
	defer cancel()
	o, err := n.observe(ctx)
	if err != nil {
		return // the daemon is starting or stopping
	}
	sink.Put(n.info, 1, o.Name, version.Version, o.Driver)
	sink.PutTime(n.reported, o.Reported)
	sink.Put(n.reportErrors, float64(o.ReportErrors))
	sink.Put(n.restarts, float64(o.Restarts))
	sink.Put(n.timeouts, float64(o.Timeouts))
	for phase, count := range o.Phases {
		sink.Put(n.tasks, float64(count), phase)
	}
	for cause, count := range o.Ends {
		sink.Put(n.ends, float64(count), cause)
	}
	for i := range o.GPUs {
		n.putGPU(sink, &o.GPUs[i])
		n.putAliases(sink, o.Name, &o.GPUs[i])
	}
	n.putTasks(sink, o.Tasks)
}

func (n *Node) putGPU(sink metrics.Sink, g *agent.GPUObservation) {
	index := strconv.Itoa(int(g.Index))
	sink.Put(n.gpu, 1, index, g.UUID, g.Type, strings.ToLower(g.Bus), g.Domain)
	sink.PutBool(n.healthy, g.Fault == "", index)
	if j := g.Job; j != nil {
		sink.Put(n.job, 1, index, j.ID.String(), strconv.FormatUint(uint64(j.Attempt), 10), j.Account, j.Partition)
	}
	for key, family := range map[string]*metrics.Family{"busy_ratio": n.busy, "memory_used_bytes": n.used, "memory_total_bytes": n.total} {
		if value, known := valueOf(g, key); known {
			sink.Put(family, value, index)
		}
	}
	for _, q := range n.quantities {
		for label, key := range q.Keys() {
			labels := []string{index}
			if q.Label != "" {
				labels = append(labels, label)
			}
			if value, known := g.Load.Values[key]; known {
				sink.Put(q.family, value, labels...)
			}
		}
	}
	for _, e := range g.Events {
		sink.Put(n.xids, float64(e.Count), index, strconv.Itoa(e.XID), e.Class)
	}
}

func (n *Node) putTasks(sink metrics.Sink, tasks []agent.TaskObservation) {
	seen := map[string]bool{}
	for _, t := range tasks {
		id := t.Job.String()
		if seen[id] { // two attempts of a job at one time
			continue
		}
		seen[id] = true
		sink.Put(n.taskMemory, float64(t.Memory), id)
		if t.CPUTime > 0 {
			sink.Put(n.taskCPU, t.CPUTime.Seconds(), id)
		}
		if t.Limit > 0 {
			sink.Put(n.taskLimit, float64(t.Limit), id)
		}
		if t.PeakMemory > 0 {
			sink.Put(n.taskPeak, float64(t.PeakMemory), id)
		}
	}
}
