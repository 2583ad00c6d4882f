package gctld

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"

	"github.com/greylag/greylag/internal/version"
	"github.com/greylag/greylag/pkg/cluster"
)

// pages are the HTTP pages next to the API: for load balancers and for Prometheus.
func (d *Daemon) pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", d.healthz)
	mux.HandleFunc("GET /metrics", d.metrics)
	return mux
}

// healthz answers 200 when this controller can serve: it knows a leader.
func (d *Daemon) healthz(w http.ResponseWriter, _ *http.Request) {
	if _, addr := d.store.log.Leader(); addr == "" {
		http.Error(w, "no leader", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// metrics writes gauges and counters in Prometheus' text format 0.0.4.
func (d *Daemon) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	m := page{w}
	d.logMetrics(m)
	d.stateMetrics(m)
	d.loopMetrics(m)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.add("greylag_heap_bytes", "gauge", "Heap in use.", sample{"", float64(mem.HeapInuse)})
	m.add("greylag_goroutines", "gauge", "Goroutines.", sample{"", float64(runtime.NumGoroutine())})
	m.add("greylag_build_info", "gauge", "Always 1.", sample{label("version", version.Version), 1})
}

func (d *Daemon) logMetrics(m page) {
	s := d.store.log.Status()
	m.add("greylag_raft_leader", "gauge", "1 if this controller is the leader.", sample{"", truth(s.State == "leader")})
	m.add("greylag_raft_has_leader", "gauge", "1 if this controller knows the leader.", sample{"", truth(s.LeaderID != "")})
	m.add("greylag_raft_term", "gauge", "Term.", sample{"", float64(s.Term)})
	m.add("greylag_raft_last_index", "gauge", "Highest log index on disk.", sample{"", float64(s.LastIndex)})
	m.add("greylag_raft_commit_index", "gauge", "Highest committed log index.", sample{"", float64(s.CommitIndex)})
	m.add("greylag_raft_applied_index", "gauge", "Highest applied log index.", sample{"", float64(s.AppliedIndex)})
	m.add("greylag_raft_members", "gauge", "Members of the Raft configuration.", sample{"", float64(len(s.Members))})
	m.add("greylag_disk_free_bytes", "gauge", "Free disk space beyond the reserve.", sample{"", float64(s.DiskFree)})
	m.add("greylag_disk_low", "gauge", "1 while submissions are refused because the disk is nearly full.", sample{"", truth(s.DiskLow)})
}

func (d *Daemon) stateMetrics(m page) {
	view := d.store.replica.View()
	counts := view.Counts()
	var jobs, nodes []sample
	for s := cluster.Pending; s <= cluster.Completing; s++ {
		jobs = append(jobs, sample{label("state", s.String()), float64(counts.ByState[s])})
	}
	m.add("greylag_jobs", "gauge", "Jobs that have not ended, by state.", jobs...)
	m.add("greylag_finished_jobs_total", "counter", "Jobs that have ended.", sample{"", float64(counts.Finished)})
	byState := map[cluster.NodeState]int{}
	gpus, used := 0, 0
	for n := range view.Nodes() {
		use := view.Use(n.Name)
		byState[n.State(use)]++
		gpus += len(n.GPUs)
		for _, taken := range use.GPUs {
			if taken {
				used++
			}
		}
	}
	for s := cluster.NodeIdle; s <= cluster.NodeDown; s++ {
		nodes = append(nodes, sample{label("state", s.String()), float64(byState[s])})
	}
	m.add("greylag_nodes", "gauge", "Nodes, by state.", nodes...)
	m.add("greylag_gpus", "gauge", "GPUs of all nodes.", sample{"", float64(gpus)})
	m.add("greylag_gpus_allocated", "gauge", "Allocated GPUs.", sample{"", float64(used)})
	m.add("greylag_requests_remembered", "gauge", "Request IDs with a stored response.", sample{"", float64(counts.Requests)})
}

func (d *Daemon) loopMetrics(m page) {
	n := d.loops.Stats()
	m.add("greylag_passes_total", "counter", "Scheduling passes of this process.", sample{"", float64(n.Passes)})
	m.add("greylag_passes_failed_total", "counter", "Passes whose plan was not committed.", sample{"", float64(n.Failed)})
	m.add("greylag_starts_total", "counter", "Jobs started by scheduling passes.", sample{"", float64(n.Starts)})
	m.add("greylag_starts_stale_total", "counter", "Starts rejected at commit as stale.", sample{"", float64(n.Stale)})
	m.add("greylag_pass_seconds", "gauge", "Duration of the last pass.", sample{"", n.LastPass.Seconds()})
	m.add("greylag_pass_longest_seconds", "gauge", "Duration of the longest pass.", sample{"", n.LongestPass.Seconds()})
	m.add("greylag_archive_complete", "gauge", "1 if the archive of this controller has no known gaps.", sample{"", truth(d.filler.Complete())})
}

// page is a metrics page being written. Errors are those of the connection: its reader notices.
type page struct{ w io.Writer }

// sample is one value with its labels.
type sample struct {
	labels string
	value  float64
}

func (p page) add(name, kind, help string, samples ...sample) {
	fmt.Fprintf(p.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	for _, s := range samples {
		fmt.Fprintf(p.w, "%s%s %g\n", name, s.labels, s.value)
	}
}

func label(name, value string) string {
	return "{" + name + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value) + `"}`
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
