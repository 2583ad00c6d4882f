// Package controllers has the metrics of a controller: of its process, and of the cluster where it
// leads.
//
// Only the leader reports the state of the cluster, so that the sum over all controllers is right.
// Labels have values from closed sets, or names that administrators choose: never users, jobs,
// paths or messages.
package controllers

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/raftlog"
)

// seconds are the bounds of short durations, commands those of the commands of an entry.
var (
	seconds  = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60}
	commands = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

// rpcSeconds are fewer: there is a histogram for each RPC in use.
var rpcSeconds = []float64{0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10}

// streams maps the streams that stay open to their kinds.
var streams = map[procedure.Name]string{
	"JobService/WatchJobs": "watch", "NodeService/WatchTasks": "wanted", "JobService/StreamLogs": "logs",
	"Tunnel/Listen": "tunnel", "Tunnel/Accept": "tunnel", "Tunnel/Connect": "tunnel",
}

// Process counts what happens in a controller. It implements raftlog.Observer, server.Observer and
// controller.Observer.
type Process struct {
	commit, fsync, entry    prometheus.Histogram
	requests, limited       *prometheus.CounterVec
	durations               *prometheus.HistogramVec
	inFlight, streams       *prometheus.GaugeVec
	passes, starts, refused *prometheus.CounterVec
	passDurations           *prometheus.HistogramVec
	spans                   *prometheus.CounterVec
	lastPass, lastBackup    *prometheus.GaugeVec // without a value until the first
	orphans                 *prometheus.GaugeVec // without a value until the cloud was listed
	providerCalls           *prometheus.CounterVec

	mu      sync.Mutex
	cycled  passCycles
	unknown int // instances without a lease
}

// NewProcess returns counters in a registry.
func NewProcess(r metrics.Registry) *Process {
	histogram := func(name, help string, bounds []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds}
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help, label string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
	}
	p := &Process{
		commit:        prometheus.NewHistogram(histogram("greylag_raft_commit_duration_seconds", "Time from the proposal of a Raft log entry until it is applied, on the leader.", seconds)),
		fsync:         prometheus.NewHistogram(histogram("greylag_raft_fsync_duration_seconds", "Duration of writes of Raft log entries to disk, with fsync.", seconds)),
		entry:         prometheus.NewHistogram(histogram("greylag_raft_entry_commands", "Commands per Raft log entry, on the leader.", commands)),
		requests:      counter("greylag_rpc_requests_total", "RPCs answered by this controller, by code.", "rpc", "code"),
		limited:       counter("greylag_rpc_limited_total", "RPCs rejected because the caller exceeded a limit.", "rpc"),
		durations:     prometheus.NewHistogramVec(histogram("greylag_rpc_duration_seconds", "Duration of RPCs, without long-lived streams.", rpcSeconds), []string{"rpc"}),
		inFlight:      gauge("greylag_rpc_in_flight", "RPCs in flight.", "rpc"),
		streams:       gauge("greylag_streams", "Long-lived streams, by kind.", "kind"),
		passes:        counter("greylag_scheduler_passes_total", "Scheduling passes of this controller, by kind and result.", "kind", "result"),
		starts:        counter("greylag_scheduler_starts_total", "Jobs started by scheduling passes of this controller."),
		refused:       counter("greylag_scheduler_starts_refused_total", "Planned starts refused because the state had changed since the plan."),
		spans:         counter("greylag_trace_spans_total", "Spans that this controller sent to the collector, by result.", "result"),
		passDurations: prometheus.NewHistogramVec(histogram("greylag_scheduler_pass_duration_seconds", "Duration of scheduling passes, without the commit of the plan.", seconds), []string{"kind"}),
		lastPass: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "greylag_scheduler_last_pass_timestamp_seconds", Help: "When the last scheduling pass of this controller ended whose plan was committed.",
		}, nil),
		lastBackup: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "greylag_backup_last_success_timestamp_seconds", Help: "When this controller last sent a complete backup, since its start.",
		}, nil),
		providerCalls: counter("greylag_burst_provider_calls_total", "Calls of the provider program by this controller, by call and result.", "call", "result"),
		orphans: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "greylag_burst_orphans", Help: "Instances in the cloud with the tag of this cluster and without a lease, when the cloud was last listed.",
		}, nil),
	}
	for _, kind := range streams {
		p.streams.WithLabelValues(kind)
	}
	for _, kind := range []string{"event", "replan"} {
		p.passDurations.WithLabelValues(kind)
		p.passes.WithLabelValues(kind, "committed")
		p.passes.WithLabelValues(kind, "failed")
	}
	p.spans.WithLabelValues("accepted")
	p.spans.WithLabelValues("rejected")
	p.starts.WithLabelValues()
	p.refused.WithLabelValues()
	r.MustRegister(p)
	return p
}

func (p *Process) all() []prometheus.Collector {
	return []prometheus.Collector{
		p.commit, p.fsync, p.entry, p.requests, p.limited, p.durations, p.inFlight, p.streams, p.passes, p.starts, p.refused, p.passDurations, p.lastPass, p.lastBackup, p.orphans, p.spans, p.providerCalls,
	}
}

// Describe implements prometheus.Collector.
func (p *Process) Describe(out chan<- *prometheus.Desc) {
	for _, c := range p.all() {
		c.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (p *Process) Collect(out chan<- prometheus.Metric) {
	for _, c := range p.all() {
		c.Collect(out)
	}
}

// Committed implements raftlog.Observer.
func (p *Process) Committed(took time.Duration, commands int) {
	p.commit.Observe(took.Seconds())
	p.entry.Observe(float64(commands))
}

// Synced implements raftlog.Observer.
func (p *Process) Synced(took time.Duration) { p.fsync.Observe(took.Seconds()) }

// SpansSent counts spans that the collector accepted, and those that it rejected.
func (p *Process) SpansSent(accepted, rejected int) {
	p.spans.WithLabelValues("accepted").Add(float64(accepted))
	p.spans.WithLabelValues("rejected").Add(float64(rejected))
}

// Begin implements server.Observer.
func (p *Process) Begin(rpc procedure.Name) {
	p.inFlight.WithLabelValues(string(rpc)).Inc()
	if kind := streams[rpc]; kind != "" {
		p.streams.WithLabelValues(kind).Inc()
	}
}

// End implements server.Observer.
func (p *Process) End(rpc procedure.Name, code string, took time.Duration) {
	p.inFlight.WithLabelValues(string(rpc)).Dec()
	kind := streams[rpc]
	if kind != "" {
		p.streams.WithLabelValues(kind).Dec()
	}
	if code == "" {
		return
	}
	p.requests.WithLabelValues(string(rpc), code).Inc()
	if rpc == "ClusterService/StreamSnapshot" && code == "ok" {
		p.lastBackup.WithLabelValues().SetToCurrentTime()
	}
	if kind == "" {
		p.durations.WithLabelValues(string(rpc)).Observe(took.Seconds())
	}
}

// Limited implements server.Observer.
func (p *Process) Limited(rpc procedure.Name) { p.limited.WithLabelValues(string(rpc)).Inc() }

// Passed implements controller.Observer.
func (p *Process) Passed(replan bool, took time.Duration, failed bool) {
	kind, result := "event", "committed"
	if replan {
		kind = "replan"
	}
	if failed {
		result = "failed"
	}
	p.passes.WithLabelValues(kind, result).Inc()
	p.passDurations.WithLabelValues(kind).Observe(took.Seconds())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cycled = passCycles{p.cycled.count + 1, took, max(p.cycled.max, took), p.cycled.total + took, time.Now()}
	if !failed {
		p.lastPass.WithLabelValues().SetToCurrentTime()
	}
}

// Started implements controller.Observer.
func (p *Process) Started(jobs, refused int) {
	p.starts.WithLabelValues().Add(float64(jobs))
	p.refused.WithLabelValues().Add(float64(refused))
}

// Orphans implements controller.Observer.
func (p *Process) Orphans(instances int) {
	p.orphans.WithLabelValues().Set(float64(instances))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unknown = instances
}

// OrphanCount returns how many instances had no lease when this controller last listed the cloud.
func (p *Process) OrphanCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unknown
}

// Called implements controller.Observer.
func (p *Process) Called(call, result string) { p.providerCalls.WithLabelValues(call, result).Inc() }

// Member collects what a controller knows about the log and its own disk.
type Member struct {
	metrics.Families
	status   func() raftlog.Status
	complete func() bool
	expires  func() time.Time

	leader, hasLeader, term, commit, applied, members  *metrics.Family
	changes, snapshot, free, low, archive, certificate *metrics.Family
}

// NewMember returns a collector. complete reports whether the archive has no known gaps, expires when
// the certificate of the controller ends.
func NewMember(status func() raftlog.Status, complete func() bool, expires func() time.Time) *Member {
	m := &Member{status: status, complete: complete, expires: expires}
	m.leader = m.Gauge("greylag_raft_leader", "1 if this controller leads.")
	m.hasLeader = m.Gauge("greylag_raft_has_leader", "1 if this controller knows the leader.")
	m.term = m.Gauge("greylag_raft_term", "Current Raft term.")
	m.commit = m.Gauge("greylag_raft_commit_index", "Highest Raft log index known to be committed.")
	m.applied = m.Gauge("greylag_raft_applied_index", "Highest Raft log index applied to the state.")
	m.members = m.Gauge("greylag_raft_members", "Controllers in the Raft configuration.")
	m.changes = m.Counter("greylag_raft_leader_changes_total", "Leader changes seen by this controller.")
	m.snapshot = m.Gauge("greylag_raft_snapshot_timestamp_seconds", "When the newest snapshot was taken or received.")
	m.free = m.Gauge("greylag_disk_headroom_bytes", "Free space of the disk above the limit at which this controller cannot lead.", "dir")
	m.low = m.Gauge("greylag_disk_low", "1 while this controller cannot lead because its disk is nearly full.", "dir")
	m.archive = m.Gauge("greylag_archive_complete", "1 if the archive of this controller has no known gaps.")
	m.certificate = m.Gauge("greylag_certificate_expiry_timestamp_seconds", "When the certificate of this controller expires.")
	return m
}

// Collect implements prometheus.Collector.
func (m *Member) Collect(out chan<- prometheus.Metric) {
	const dir = "data" // data_dir; paths are no labels
	s, sink := m.status(), metrics.Sink(out)
	sink.PutBool(m.leader, s.State == "leader")
	sink.PutBool(m.hasLeader, s.LeaderID != "")
	sink.Put(m.term, float64(s.Term))
	sink.Put(m.commit, float64(s.CommitIndex))
	sink.Put(m.applied, float64(s.AppliedIndex))
	sink.Put(m.members, float64(len(s.Members)))
	sink.Put(m.changes, float64(s.LeaderChanges))
	sink.PutTime(m.snapshot, s.SnapshotAt)
	sink.Put(m.free, float64(s.DiskFree), dir)
	sink.PutBool(m.low, s.DiskLow, dir)
	sink.PutBool(m.archive, m.complete())
	sink.PutTime(m.certificate, m.expires())
}
