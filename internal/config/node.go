package config

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// NodePath is where gnoded looks when no file is named.
const NodePath = "/etc/greylag/gnoded.toml"

// Node is gnoded's file. What the host has (CPUs, memory, GPUs, links) is discovered; what stands here
// replaces what was found.
type Node struct {
	Name          string          `toml:"name"`        // default: the host's name up to the first dot
	Controllers   []string        `toml:"controllers"` // after loading: HOST:PORT each
	DataDir       string          `toml:"data_dir"`    // what must outlive a reboot
	StateDir      string          `toml:"state_dir"`   // what need not: tasks' run files
	PKIDir        string          `toml:"pki_dir"`
	CDIDir        string          `toml:"cdi_dir"` // the node's own CDI specifications
	Runtime       string          `toml:"runtime" one:"containerd,process"`
	Containerd    Containerd      `toml:"containerd"`
	Registries    Registries      `toml:"registries"`
	Images        Images          `toml:"images"`
	CPUs          int             `toml:"cpus"`           // 0: those of the host
	Memory        cluster.Bytes   `toml:"memory"`         // 0: that of the host
	Features      []string        `toml:"features"`       // words that jobs can ask for
	Region        string          `toml:"region"`         // where it is: a word that jobs can ask for
	Prolog        string          `toml:"prolog"`         // program run as root before each task; "": none
	Epilog        string          `toml:"epilog"`         // and after each
	HookTimeout   time.Duration   `toml:"hook_timeout"`   // of either
	LaunchTimeout time.Duration   `toml:"launch_timeout"` // of all that comes before a task's start
	Poll          Poll            `toml:"poll"`           // how often things are looked at
	SimulatedGPUs []SimulatedGPUs `toml:"simulated_gpus"` // instead of those that the host has
	// SimulatedGPUOffset is how many simulated devices of this machine other nodes on it have, so that
	// the kernel tells the nodes' GPUs apart.
	SimulatedGPUOffset int `toml:"simulated_gpu_offset" was:"simulated_gpus_after"`

	Log Log `toml:"log"`
}

// Containerd is where the container daemon is and how it runs tasks.
type Containerd struct {
	Socket     string `toml:"socket"`
	Namespace  string `toml:"namespace"`
	OCIRuntime string `toml:"oci_runtime" one:"auto,runc,crun"`
	Shim       string `toml:"shim" one:"gshim,containerd"`
}

// Poll is how often gnoded looks.
type Poll struct {
	Report time.Duration `toml:"report"` // a full report although nothing changed; the sign of life
	Health time.Duration `toml:"health"` // which GPUs there are, their health, memory and NVLink domains
	Meter  time.Duration `toml:"meter"`  // how busy the GPUs of tasks are
}

// SimulatedGPUs is a group of GPUs that do not exist: character devices stand in for them, so that
// everything but computing on them works.
type SimulatedGPUs struct {
	Count  int           `toml:"count"`
	Type   string        `toml:"type"`
	Memory cluster.Bytes `toml:"memory"` // of each
	// NVLinkDomain names the domain they are all in; nodes that use the same name share one, as in a
	// rack. "" makes them a domain of this host alone.
	NVLinkDomain string `toml:"nvlink_domain"`
}

// DefaultNode is what gnoded runs with where its file is silent; Name, empty here, is filled in by
// LoadNode.
func DefaultNode() Node {
	return Node{
		Controllers: []string{"localhost:" + DefaultPort},
		DataDir:     "/var/lib/greylag/node",
		StateDir:    "/run/greylag/node",
		PKIDir:      "/var/lib/greylag/node/pki",
		CDIDir:      "/run/greylag/cdi",
		Runtime:     "containerd",
		Containerd:  Containerd{Socket: "/run/containerd/containerd.sock", Namespace: "greylag", OCIRuntime: "auto", Shim: "gshim"},
		Registries:  defaultRegistries(),
		Images:      defaultImages(),
		HookTimeout: 5 * time.Minute, LaunchTimeout: 30 * time.Minute,
		Poll: Poll{Report: 10 * time.Second, Health: 30 * time.Second, Meter: 5 * time.Second},
		Log:  defaultLog(),
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
	if cfg.Prolog != "" {
		c.Absolute("prolog", cfg.Prolog)
	}
	if cfg.Epilog != "" {
		c.Absolute("epilog", cfg.Epilog)
	}
	c.AtLeast("hook_timeout", cfg.HookTimeout, time.Second)
	c.AtLeast("launch_timeout", cfg.LaunchTimeout, 10*time.Second)
	c.AtLeast("poll.report", cfg.Poll.Report, 100*time.Millisecond)
	if cfg.Poll.Report > 10*time.Second {
		c.Fault("poll.report", "%v is too long: a node that is silent for 20s counts as UNKNOWN, at most 10s", cfg.Poll.Report)
	}
	c.AtLeast("poll.health", cfg.Poll.Health, time.Second)
	c.AtLeast("poll.meter", cfg.Poll.Meter, time.Second)
	cfg.checkGPUs(c)
}

// maxGPUs is how many devices one node may have, simulated or not.
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
		c.Fault("simulated_gpus", "%d in all, at most %d", total, maxGPUs)
	}
}
