package gsim

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/clusterdoc"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/pkg/cluster"
)

// machine holds the options that describe the machine.
type machine struct {
	flat     int32
	file     string
	nodes    int
	gpus     int
	cpus     int
	topology string
	warnings []string // about the topology
	set      func(option string) bool
}

func (m *machine) flags(c *cobra.Command) {
	f := c.Flags()
	m.set = f.Changed
	f.Int32Var(&m.flat, "flat", 0, "one machine of this many interchangeable processors")
	f.StringVar(&m.file, "machine", "", "file that describes the nodes (see docs/gsim.md)")
	f.IntVar(&m.nodes, "nodes", 0, "number of equal nodes")
	f.IntVar(&m.gpus, "gpus-per-node", 8, "GPUs of each of --nodes")
	f.IntVar(&m.cpus, "cpus-per-node", 0, "CPUs per node with --nodes; the nodes have no GPUs")
	f.StringVar(&m.topology, "topology", "", "topology file: Slurm's topology.yaml or topology.conf, or a table ip,DSW,PSW,ASW")
	c.MarkFlagsMutuallyExclusive("flat", "machine", "nodes")
	c.MarkFlagsMutuallyExclusive("flat", "topology")
	c.MarkFlagsMutuallyExclusive("cpus-per-node", "gpus-per-node")
}

// fleet returns the machine of the options; nil if they describe none.
func (m *machine) fleet() (*sim.Machine, error) {
	switch {
	case m.flat < 0 || m.nodes < 0 || m.flat == 0 && m.set("flat") || m.nodes == 0 && m.set("nodes"):
		return nil, &ui.UsageError{Problem: "a machine has at least one processor or node"}
	case m.set("cpus-per-node") && m.nodes == 0 && m.topology == "":
		return nil, &ui.UsageError{Problem: "--cpus-per-node needs --nodes", Advice: "add the number of nodes, such as --nodes 100"}
	case m.flat > 0:
		return sim.Flat(m.flat), nil
	case m.nodes > 0:
		f, err := m.uniform(m.nodes)
		if err != nil {
			return nil, err
		}
		return f, m.fabric(f, m.topology)
	case m.file != "":
		text, err := os.ReadFile(m.file)
		if err != nil {
			return nil, &ui.UsageError{Problem: err.Error()}
		}
		nodes, topology, err := clusterdoc.ReadMachine(m.file, text)
		if err != nil {
			return nil, err
		}
		if m.topology != "" {
			topology = m.topology
		} else if topology != "" {
			topology = filepath.Join(filepath.Dir(m.file), topology)
		}
		f := &sim.Machine{Nodes: nodes}
		return f, m.fabric(f, topology)
	case m.topology != "":
		f := &sim.Machine{}
		return f, m.fabric(f, m.topology)
	}
	return nil, nil
}

// uniform returns the equal nodes that the options describe.
func (m *machine) uniform(nodes int) (*sim.Machine, error) {
	if m.set("cpus-per-node") {
		return sim.UniformCPUs(nodes, m.cpus)
	}
	return sim.Uniform(nodes, m.gpus)
}

// depths maps the words of --policy to depths.
func depths() map[string]int32 {
	return map[string]int32{"conservative": cluster.Unlimited, "easy": 1, "fcfs": 0}
}

// The words of --order.
const (
	orderPriority = "priority"
	orderFCFS     = "fcfs"
)

// rules holds the options of the policy. gsim replay and gsim front add --order and
// --promise-horizon; in gsim front both take lists.
type rules struct {
	file    string
	policy  string
	order   string
	horizon string
	window  string
	replan  string
	depth   int32
	share   string
	half    string
}

func (r *rules) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&r.file, "policy-file", "", "the cluster's policy, as for gctl apply")
	f.StringVar(&r.policy, "policy", "conservative", "backfilling: conservative (delays no job ahead), easy (does not delay the first job; no promises by default), fcfs (none)")
	f.StringVar(&r.window, "window", "", "window in which starts are planned; 0 is unlimited")
	f.StringVar(&r.replan, "replan", "", "time between two plans of all starts without a promise; longer replays faster")
	f.Int32Var(&r.depth, "depth", 0, "number of pending jobs with a planned start, instead of --policy; -1 is all")
	f.StringVar(&r.share, "fair-share", "", "fair-tree or classic")
	f.StringVar(&r.half, "half-life", "", "half-life of usage; 0 is no decay")
}

// apply returns the policy: the file's, or the default one without grace periods, which virtual
// nodes do not need; changed by the options.
func (r *rules) apply(c *cobra.Command) (*cluster.Policy, error) {
	p := cluster.DefaultPolicy()
	p.KillWait = 0
	if r.file != "" {
		text, err := os.ReadFile(r.file)
		if err != nil {
			return nil, &ui.UsageError{Problem: err.Error()}
		}
		if p, err = clusterdoc.ReadPolicy(r.file, text); err != nil {
			return nil, err
		}
	}
	s := &p.Scheduling
	if r.file == "" || c.Flags().Changed("policy") {
		depth, known := depths()[r.policy]
		if !known {
			return nil, &ui.UsageError{Problem: "unknown policy " + r.policy, Advice: "write conservative, easy or fcfs"}
		}
		s.Depth = depth
		if r.policy == "easy" { // a promise delays jobs that EASY would start
			s.PromiseHorizon = 0
		}
	}
	switch {
	case r.depth < cluster.Unlimited:
		return nil, &ui.UsageError{Problem: fmt.Sprintf("--depth %d is not a number of jobs", r.depth), Advice: "-1 is all pending jobs"}
	case c.Flags().Changed("depth"):
		s.Depth = r.depth
	}
	switch r.order {
	case orderFCFS:
		s.Weights = cluster.Weights{}
	case orderPriority:
	default:
		return nil, &ui.UsageError{Problem: "unknown order " + r.order, Advice: "write priority or fcfs"}
	}
	switch r.share {
	case "classic", "fair-tree":
		s.FairShare.Classic = r.share == "classic"
	case "":
	default:
		return nil, &ui.UsageError{Problem: "unknown fair share " + r.share, Advice: "write fair-tree or classic"}
	}
	for _, x := range []struct {
		name, text string
		into       *time.Duration
		read       func(option, text string) (time.Duration, error)
	}{
		{"promise-horizon", r.horizon, &s.PromiseHorizon, readHorizon}, {"window", r.window, &s.Window, readTime},
		{"replan", r.replan, &s.Replan, readTime}, {"half-life", r.half, &s.FairShare.HalfLife, readTime},
	} {
		if x.text == "" {
			continue
		}
		d, err := x.read(x.name, x.text)
		if err != nil {
			return nil, err
		}
		*x.into = d
	}
	return &p, nil
}

// readTime reads the value of an option that is a time such as 90s, 1h30m, 7d or 0.
func readTime(option, text string) (time.Duration, error) {
	number, unit := text, time.Duration(1)
	if n := len(text) - 1; n > 0 && text[n] == 'd' {
		number, unit = text[:n]+"h", 24
	}
	d, err := time.ParseDuration(number)
	if err != nil || d < 0 || d > 100*365*24*time.Hour/unit {
		return 0, &ui.UsageError{Problem: "--" + option + " " + text + " is not a time", Advice: "write it like 90s, 5m, 1h30m or 7d"}
	}
	return d * unit, nil
}

// readHorizon reads the value of an option that is a time or unlimited.
func readHorizon(option, text string) (time.Duration, error) {
	if text == "unlimited" {
		return cluster.Unlimited, nil
	}
	return readTime(option, text)
}
