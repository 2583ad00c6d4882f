package gctld

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/metrics/controllers"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// pages are the HTTP pages next to the API: for supervisors, load balancers and Prometheus.
func (d *Daemon) pages() http.Handler {
	all := controllers.NewCluster(d.ledView, d.cfg.Metrics.Accounts)
	if slices.Contains(d.cfg.Metrics.Compat, controllers.Slurm) {
		all.EnableSlurmCompat(d.observed)
	}
	d.metrics.MustRegister(controllers.NewMember(d.store.log.Status, d.filler.Complete, d.identity.Expires), all)
	mux := http.NewServeMux()
	metrics.Health(mux, d.checks)
	mux.Handle("GET /metrics", d.metrics.Handler())
	mux.HandleFunc("GET /sd/nodes", d.discover)
	return mux
}

// ledView returns the state while this controller leads, else nil.
func (d *Daemon) ledView() *state.View {
	if _, leads := d.loops.Leading(); !leads {
		return nil
	}
	return d.store.replica.View()
}

// maxLag is the number of committed entries that the state of a ready controller may lack.
const maxLag = 10_000

// checks returns the conditions under which this controller serves requests as it should.
func (d *Daemon) checks() []metrics.Check {
	s := d.store.log.Status()
	lag := s.CommitIndex - min(s.AppliedIndex, s.CommitIndex)
	return []metrics.Check{
		metrics.Failed("leader", s.LeaderID == "", "no leader is known"),
		metrics.Failed("lag", lag > maxLag, "%d committed entries are not applied yet", lag),
		metrics.Failed("disk", s.DiskLow, "the disk is nearly full: submissions are refused"),
		metrics.Failed("archive", !d.filler.Complete(), "the archive has gaps: the leader answers requests about history"),
	}
}

// exporterPort is the port of node_exporter, which serves the metrics that nodes write to a file.
const exporterPort = "9100"

// discovering holds an element for each list of nodes that is being written, at most four.
var discovering = make(chan struct{}, 4)

// target is an entry of Prometheus' HTTP service discovery.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// discover lists the nodes for Prometheus' http_sd. The parameter port replaces that of
// node_exporter.
func (d *Daemon) discover(w http.ResponseWriter, r *http.Request) {
	port := r.URL.Query().Get("port")
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		port = exporterPort
	}
	select { // any host may ask
	case discovering <- struct{}{}:
		defer func() { <-discovering }()
	default:
		http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(targets(d.store.replica.View(), port)) // fails only if the client has disconnected
}

// targets returns the nodes of a state with what they are.
func targets(v *state.View, port string) []target {
	partitions := map[string][]string{}
	for i := range v.Policy().Partitions {
		name := v.Policy().Partitions[i].Name
		for _, node := range v.PartitionNodes(name) {
			partitions[node] = append(partitions[node], name)
		}
	}
	list := []target{} // "[]", not "null", without nodes
	for n := range v.Nodes() {
		list = append(list, target{
			Targets: []string{net.JoinHostPort(n.Name, port)},
			Labels: map[string]string{
				"__meta_greylag_node": n.Name, "__meta_greylag_state": n.State(v.Use(n.Name)).String(),
				"__meta_greylag_partition": wordList(partitions[n.Name]), "__meta_greylag_leaf": leafOf(v, n.Name),
				"__meta_greylag_gpu_type": wordList(distinct(n, func(g *cluster.GPU) string { return g.Type })),
				"__meta_greylag_domain":   wordList(distinct(n, func(g *cluster.GPU) string { return g.Domain })),
			},
		})
	}
	return list
}

// leafOf returns the leaf switch of a node; "" if unknown.
func leafOf(v *state.View, node string) string {
	leaf, known := v.Fabric().Domain(0, node)
	if !known || v.Fabric() == nil { // no topology: one leaf with every node
		return ""
	}
	return v.Fabric().Name(0, leaf)
}

// distinct returns the values of a node's GPUs, sorted.
func distinct(n *cluster.Node, of func(*cluster.GPU) string) (all []string) {
	for i := range n.GPUs {
		if word := of(&n.GPUs[i]); word != "" {
			all = append(all, word)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// wordList joins words so that each is between two commas, as Prometheus' own discoveries do, for
// regular expressions such as ".*,h100,.*".
func wordList(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "," + strings.Join(words, ",") + ","
}
