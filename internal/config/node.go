package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// NodePath is the standard path of gnoded's file.
const NodePath = "/etc/greylag/gnoded.toml"

// Node is gnoded's file. The hardware of the host (CPUs, memory, GPUs, links) is discovered;
// settings here replace what was found.
type Node struct {
	Name        string        `toml:"name"`        // default: the host's name up to the first dot
	Controllers []string      `toml:"controllers"` // after loading: HOST:PORT each
	DataDir     string        `toml:"data_dir"`    // data that must survive a reboot
	StateDir    string        `toml:"state_dir"`   // data that need not: tasks' run files
	PKIDir      string        `toml:"pki_dir"`
	CDIDir      string        `toml:"cdi_dir"` // the node's own CDI specifications
	Runtime     string        `toml:"runtime" one:"containerd,process"`
	Containerd  Containerd    `toml:"containerd"`
	Registries  Registries    `toml:"registries"`
	Images      Images        `toml:"images"`
	CPUs        int           `toml:"cpus"`     // 0: those of the host
	Memory      cluster.Bytes `toml:"memory"`   // 0: that of the host
	Features    []string      `toml:"features"` // words that jobs can request
	Region      string        `toml:"region"`   // a word that jobs can request
	Gres        strict.Gres   `toml:"gres"`     // generic resources: NAME or NAME:TYPE and the count
	// ScratchDir is the parent of the scratch directories of jobs; "": the node offers no scratch space.
	// ScratchReserve is the part of its file system that is withheld from jobs.
	ScratchDir     string        `toml:"scratch_dir"`
	ScratchReserve cluster.Bytes `toml:"scratch_reserve"`
	Prolog         string        `toml:"prolog"`           // program run as root before each task; "": none
	Epilog         string        `toml:"epilog"`           // the same after each task
	RebootProgram  string        `toml:"reboot_program"`   // that reboots the node; "": systemctl reboot
	HookTimeout    time.Duration `toml:"hook_timeout"`     // of either
	LaunchTimeout  time.Duration `toml:"launch_timeout"`   // of everything before a task's start
	SelfFenceAfter time.Duration `toml:"self_fence_after"` // without an answer of a controller; 0: never
	// LeaseFile is what gctl join --lease wrote on a leased node; the other keys count only on a node with that file.
	LeaseFile       string          `toml:"lease_file"`
	LeaseIdleLimit  time.Duration   `toml:"lease_idle_limit"`  // without a task and an answer of a controller: the node powers off
	PowerOffProgram string          `toml:"power_off_program"` // that powers the node off; "": systemctl poweroff
	ReclaimSource   string          `toml:"reclaim_source"`    // of the cloud's notices: aws, file:PATH, exec:PROGRAM; "": none
	ReclaimURL      string          `toml:"reclaim_url"`       // of the metadata service, for aws
	BlockMetadata   bool            `toml:"block_metadata"`    // from users of the node
	Health          NodeChecks      `toml:"health"`            // checks that the node makes of itself
	Poll            Poll            `toml:"poll"`              // intervals of checks
	MIG             []MIG           `toml:"mig"`               // GPUs that are divided
	SimulatedGPUs   []SimulatedGPUs `toml:"simulated_gpus"`    // instead of those of the host
	// SimulatedGPUOffset is the number of simulated devices that other nodes on this host have, so
	// that the kernel distinguishes the nodes' GPUs.
	SimulatedGPUOffset int `toml:"simulated_gpu_offset" was:"simulated_gpus_after"`

	Metrics NodeMetrics `toml:"metrics"`
	Log     Log         `toml:"log"`
}

// Containerd configures the container daemon and how it runs tasks.
type Containerd struct {
	Socket     string `toml:"socket"`
	Namespace  string `toml:"namespace"`
	OCIRuntime string `toml:"oci_runtime" one:"auto,runc,crun"`
	Shim       string `toml:"shim" one:"gshim,containerd"`
}

// NodeMetrics says where gnoded shows its metrics.
type NodeMetrics struct {
	Textfile string `toml:"textfile"` // for node_exporter, while its directory exists; "": none
	Listen   string `toml:"listen"`   // HOST:PORT; "": no listener
	// Compat names exporters whose metric names are used in addition.
	Compat []string `toml:"compat" one:"dcgm,jobstats"`
}

// NodeChecks are the checks that a node makes of itself, apart from its runtime and its GPUs.
type NodeChecks struct {
	Program         string        `toml:"program"` // run as root; a failure drains the node; "": none
	Period          time.Duration `toml:"period"`  // of the program on an idle node
	Timeout         time.Duration `toml:"timeout"` // of the program
	WhileBusy       bool          `toml:"while_busy"`
	InfiniBandPorts int           `toml:"infiniband_ports"` // that must be active; 0: those that were
	ValidateProgram string        `toml:"validate_program"` // run as root after a boot or a repair; "": none
	ValidateTimeout time.Duration `toml:"validate_timeout"` // of that program
	GPUMemory       cluster.Bytes `toml:"gpu_memory"`       // of a GPU that may be in use after a job; 0: any
}

// Poll is the intervals of gnoded's checks.
type Poll struct {
	Report time.Duration `toml:"report"` // of full reports without a change, which show that the node is alive
	Health time.Duration `toml:"health"` // of GPUs: presence, health, memory and NVLink domains
	Meter  time.Duration `toml:"meter"`  // of the utilisation of tasks' GPUs
}

// MIG says how GPUs are divided into instances. Others are whole.
type MIG struct {
	Nodes  []string `toml:"nodes"`  // names or host lists; empty: every node that reads the file
	GPUs   []int    `toml:"gpus"`   // indices, as the driver numbers them; empty: all of the node
	Layout []string `toml:"layout"` // profiles
}

// SimulatedGPUs is a group of GPUs that do not exist. Character devices replace them, so that
// everything except computing works.
type SimulatedGPUs struct {
	Count  int           `toml:"count"`
	Type   string        `toml:"type"`
	Memory cluster.Bytes `toml:"memory"` // of each
	// NVLinkDomain is the name of the domain of all of them; nodes with the same name share one, as
	// in a rack. "" is a domain of this host alone.
	NVLinkDomain string `toml:"nvlink_domain"`
}

// DefaultNode returns the defaults of gnoded. LoadNode sets Name, which is empty here.
func DefaultNode() Node {
	return Node{
		Controllers:    []string{"localhost:" + DefaultPort},
		DataDir:        "/var/lib/greylag/node",
		StateDir:       "/run/greylag/node",
		PKIDir:         "/var/lib/greylag/node/pki",
		CDIDir:         "/run/greylag/cdi",
		Runtime:        "containerd",
		Containerd:     Containerd{Socket: "/run/containerd/containerd.sock", Namespace: "greylag", OCIRuntime: "auto", Shim: "gshim"},
		Registries:     defaultRegistries(),
		Images:         defaultImages(),
		ScratchReserve: 10 * cluster.GiB,
		HookTimeout:    5 * time.Minute, LaunchTimeout: 30 * time.Minute,
		LeaseFile: "/var/lib/greylag/node/lease.json", LeaseIdleLimit: 15 * time.Minute,
		ReclaimURL: "http://169.254.169.254", BlockMetadata: true,
		Health:  NodeChecks{Period: 5 * time.Minute, Timeout: time.Minute, GPUMemory: 128 * cluster.MiB, ValidateTimeout: 10 * time.Minute},
		Poll:    Poll{Report: 10 * time.Second, Health: 30 * time.Second, Meter: 5 * time.Second},
		Metrics: NodeMetrics{Textfile: "/var/lib/prometheus/node-exporter/greylag.prom"},
		Log:     defaultLog(),
	}
}

// LoadNode reads gnoded's file and drop-ins. "" is NodePath, which may be absent.
func LoadNode(path string) (Node, error) {
	path, optional := pick(path, NodePath)
	return loadNode(path, optional)
}

// LoadNodeIfAny is LoadNode, except that a named file need not exist yet.
func LoadNodeIfAny(path string) (Node, error) {
	path, _ = pick(path, NodePath)
	return loadNode(path, true)
}

func loadNode(path string, optional bool) (Node, error) {
	cfg := DefaultNode()
	err := load(path, optional, &cfg)
	return cfg, err
}

func (cfg *Node) check(c *checker) {
	if _, short := hostName(); cfg.Name == "" {
		cfg.Name = short
	}
	c.HostName("name", cfg.Name)
	cfg.Controllers = c.addresses("controllers", cfg.Controllers)
	c.Absolute("data_dir", cfg.DataDir)
	c.Absolute("state_dir", cfg.StateDir)
	c.Absolute("pki_dir", cfg.PKIDir)
	c.Absolute("cdi_dir", cfg.CDIDir)
	c.Absolute("containerd.socket", cfg.Containerd.Socket)
	c.Word("containerd.namespace", cfg.Containerd.Namespace)
	cfg.Registries.check(c)
	cfg.Images.check(c)
	c.Between("cpus", cfg.CPUs, 0, 1<<16)
	if cfg.Memory != 0 && cfg.Memory < 64*cluster.MiB {
		c.Fault("memory", "%v is too little, at least 64M", cfg.Memory)
	}
	for i, f := range cfg.Features {
		c.Word(fmt.Sprintf("features[%d]", i), f)
	}
	if cfg.Region != "" {
		c.Word("region", cfg.Region)
	}
	cfg.checkScratch(c)
	if cfg.Prolog != "" {
		c.Absolute("prolog", cfg.Prolog)
	}
	if cfg.Epilog != "" {
		c.Absolute("epilog", cfg.Epilog)
	}
	if cfg.RebootProgram != "" {
		c.Absolute("reboot_program", cfg.RebootProgram)
	}
	c.AtLeast("hook_timeout", cfg.HookTimeout, time.Second)
	c.AtLeast("launch_timeout", cfg.LaunchTimeout, 10*time.Second)
	if f := cfg.SelfFenceAfter; f != 0 && f < 30*time.Second {
		c.Fault("self_fence_after", "%v is too short: want at least 30s (a leader election takes seconds), or 0s for never", f)
	}
	cfg.checkLease(c)
	if cfg.Health.Program != "" {
		c.Absolute("health.program", cfg.Health.Program)
	}
	c.AtLeast("health.period", cfg.Health.Period, 10*time.Second)
	c.AtLeast("health.timeout", cfg.Health.Timeout, time.Second)
	if cfg.Health.ValidateProgram != "" {
		c.Absolute("health.validate_program", cfg.Health.ValidateProgram)
	}
	c.AtLeast("health.validate_timeout", cfg.Health.ValidateTimeout, time.Second)
	c.Between("health.infiniband_ports", cfg.Health.InfiniBandPorts, 0, 256)
	if g := cfg.Health.GPUMemory; g < 0 || g > 16*cluster.TiB {
		c.Fault("health.gpu_memory", "%v is out of range: want 0 to 16T", g)
	}
	c.AtLeast("poll.report", cfg.Poll.Report, 100*time.Millisecond)
	if cfg.Poll.Report > 10*time.Second {
		c.Fault("poll.report", "%v is too long, at most 10s: a node is UNKNOWN after 20s without a report", cfg.Poll.Report)
	}
	c.AtLeast("poll.health", cfg.Poll.Health, time.Second)
	c.AtLeast("poll.meter", cfg.Poll.Meter, time.Second)
	if cfg.Metrics.Textfile != "" {
		c.Absolute("metrics.textfile", cfg.Metrics.Textfile)
		if !strings.HasSuffix(cfg.Metrics.Textfile, ".prom") {
			c.Fault("metrics.textfile", "%q does not end in .prom: node_exporter would not read it", cfg.Metrics.Textfile)
		}
	}
	if cfg.Metrics.Listen != "" {
		c.address("metrics.listen", cfg.Metrics.Listen, true)
	}
	cfg.checkGPUs(c)
	cfg.checkMIG(c)
}

// checkLease checks the keys of leased nodes.
func (cfg *Node) checkLease(c *checker) {
	c.Absolute("lease_file", cfg.LeaseFile)
	c.AtLeast("lease_idle_limit", cfg.LeaseIdleLimit, 10*time.Second)
	if cfg.PowerOffProgram != "" {
		c.Absolute("power_off_program", cfg.PowerOffProgram)
	}
	kind, path, with := strings.Cut(cfg.ReclaimSource, ":")
	switch {
	case !with && (kind == "" || kind == "aws"):
	case with && (kind == "file" || kind == "exec"):
		c.Absolute("reclaim_source", path)
	default:
		c.Fault("reclaim_source", "%q is not aws, file:PATH or exec:PROGRAM, or empty for none", cfg.ReclaimSource)
	}
	if u, err := url.Parse(cfg.ReclaimURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		c.Fault("reclaim_url", "%q is not a URL that begins with http:// or https://", cfg.ReclaimURL)
	}
}

// checkScratch refuses directories that tasks cannot see or that have other uses, and a generic resource of the
// same name.
func (cfg *Node) checkScratch(c *checker) {
	if cfg.ScratchDir == "" {
		return
	}
	c.Absolute("scratch_dir", cfg.ScratchDir)
	cfg.ScratchDir = filepath.Clean(cfg.ScratchDir)
	if slices.Contains([]string{"/", "/tmp", "/var/tmp"}, cfg.ScratchDir) {
		c.Fault("scratch_dir", "%s is a system directory: use a subdirectory of it", cfg.ScratchDir)
	}
	for _, dir := range []string{cfg.DataDir, cfg.StateDir, cfg.PKIDir, cfg.CDIDir, "/dev", "/proc", "/sys"} {
		if dir = filepath.Clean(dir); strings.HasPrefix(cfg.ScratchDir+"/", dir+"/") {
			c.Fault("scratch_dir", "%s is inside %s, which tasks cannot see", cfg.ScratchDir, dir)
		}
	}
	named := slices.ContainsFunc(cfg.Gres, func(g cluster.Gres) bool { return g.Name == cluster.GresTmp })
	switch {
	case named:
		c.Fault("gres", "scratch_dir already defines %q: remove it from gres, or unset scratch_dir", cluster.GresTmp)
	case len(cfg.Gres) >= cluster.MaxGres:
		c.Fault("gres", "%d generic resources; with scratch_dir the maximum is %d", len(cfg.Gres), cluster.MaxGres-1)
	}
}

// maxGPUs is the most devices of one node, simulated or not.
const maxGPUs = 64

func (cfg *Node) checkGPUs(c *checker) {
	total := cfg.SimulatedGPUOffset
	c.Between("simulated_gpu_offset", total, 0, maxGPUs)
	for i, g := range cfg.SimulatedGPUs {
		at := fmt.Sprintf("simulated_gpus[%d]", i)
		c.Between(at+".count", g.Count, 1, maxGPUs)
		c.Word(at+".type", g.Type)
		if g.Memory < cluster.MiB || g.Memory > 16*cluster.TiB {
			c.Fault(at+".memory", "%v is out of range, 1M to 16T", g.Memory)
		}
		if g.NVLinkDomain != "" {
			c.Word(at+".nvlink_domain", g.NVLinkDomain)
		}
		total += g.Count
	}
	if total > maxGPUs {
		c.Fault("simulated_gpus", "%d in total, at most %d", total, maxGPUs)
	}
}

// checkMIG refuses layouts that no GPU can have, and two for one GPU. It removes the entries of other nodes.
func (cfg *Node) checkMIG(c *checker) {
	var own []MIG
	seen := map[int]bool{}
	for i, m := range cfg.MIG {
		at := fmt.Sprintf("mig[%d]", i)
		if len(m.Layout) == 0 {
			c.Fault(at+".layout", "no profiles: name some, such as 3g.40gb, or remove the entry")
		} else if err := cluster.CheckMIGLayout(m.Layout); err != nil {
			c.Fault(at+".layout", "%v", err)
		}
		for j, index := range m.GPUs {
			c.Between(fmt.Sprintf("%s.gpus[%d]", at, j), index, 0, maxGPUs-1)
		}
		if !cfg.isAmong(c, at+".nodes", m.Nodes) {
			continue
		}
		gpus := m.GPUs
		if len(gpus) == 0 {
			gpus = []int{-1} // all
		}
		for _, index := range gpus {
			if seen[index] || seen[-1] || index == -1 && len(seen) > 0 {
				c.Fault(at+".gpus", "a GPU of node %s has two layouts", cfg.Name)
				break
			}
			seen[index] = true
		}
		own = append(own, m)
	}
	cfg.MIG = own
	if instances := cfg.simulatedInstances(); len(own) > 0 && instances > maxGPUs {
		c.Fault("mig", "%d simulated GPUs and instances in total, at most %d", instances, maxGPUs)
	}
}

// isAmong reports whether host lists name this node. No list names every node.
func (cfg *Node) isAmong(c *checker, key string, lists []string) bool {
	for i, text := range lists {
		names, err := hostlist.Expand(text)
		if err != nil {
			c.Fault(fmt.Sprintf("%s[%d]", key, i), "%v", err)
			continue
		}
		if slices.Contains(names, cfg.Name) {
			return true
		}
	}
	return len(lists) == 0
}

// LayoutOf returns the profiles into which a GPU is divided; nil for none.
func (cfg *Node) LayoutOf(index int) []string {
	for _, m := range cfg.MIG {
		if len(m.GPUs) == 0 || slices.Contains(m.GPUs, index) {
			return m.Layout
		}
	}
	return nil
}

// simulatedInstances counts simulated GPUs that are whole, and instances of the others.
func (cfg *Node) simulatedInstances() int {
	total, index := 0, 0
	for _, g := range cfg.SimulatedGPUs {
		for range min(max(g.Count, 0), maxGPUs) {
			total += max(1, len(cfg.LayoutOf(index)))
			index++
		}
	}
	return total
}
