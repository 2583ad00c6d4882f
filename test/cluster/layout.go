package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/greylag/greylag/internal/simgpu"
)

// layOut creates folders, file systems, namespaces and the configuration of every program.
func (c *Cluster) layOut(context.Context) error {
	if c.options.Namespaces {
		var err error
		if c.network, err = newNetwork(c.Dir, c.options.Controllers); err != nil {
			return err
		}
	}
	ports, err := freePorts(c.options.Controllers)
	if err != nil {
		return err
	}
	for i := range c.options.Controllers {
		if err := c.layOutController(i, ports[i]); err != nil {
			return err
		}
	}
	for i := range c.options.Nodes {
		if err := c.layOutNode(i); err != nil {
			return err
		}
	}
	auth := filepath.Join(c.Dir, "auth")
	c.auth = newProcess(c.logs(), "gauthd", c.program("gauthd"), "--config", filepath.Join(auth, "gauthd.toml"))
	if err := os.WriteFile(filepath.Join(auth, "gauthd.toml"), fmt.Appendf(nil,
		"socket = %q\npki_dir = %q\ncontrollers = %s\n", c.socket(), filepath.Join(auth, "pki"), c.addresses()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(c.ConfigFile(), fmt.Appendf(nil,
		"controllers = %s\nca_file = %q\nauth_socket = %q\n", c.addresses(), c.caFile(), c.socket()), 0o644)
}

func (c *Cluster) socket() string { return filepath.Join(c.Dir, "auth.sock") }

func (c *Cluster) caFile() string { return filepath.Join(c.Dir, "ca.pem") }

// addresses returns every controller's, as a TOML list.
func (c *Cluster) addresses() string {
	var list []string
	for _, ctl := range c.controllers {
		list = append(list, fmt.Sprintf("%q", ctl.Addr))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func (c *Cluster) layOutController(i, port int) error {
	name := fmt.Sprintf("c%d", i+1)
	dir := filepath.Join(c.Dir, name)
	ctl := &Controller{Name: name, dir: dir, Data: filepath.Join(dir, "data")}
	if err := os.MkdirAll(ctl.Data, 0o700); err != nil {
		return err
	}
	ctl.Process = newProcess(c.logs(), name, c.gctld, "--config", filepath.Join(dir, "gctld.toml"))
	if c.options.Keep {
		var err error
		if ctl.argv, err = kept(ctl.argv...); err != nil {
			return err
		}
		ctl.env = append(ctl.env, keepVariable+"=1")
	}
	if c.network != nil {
		ctl.Addr = c.network.address(i) + ":7117"
		ctl.enter = c.network.enter(i)
	} else {
		ctl.Addr = fmt.Sprintf("127.0.0.1:%d", port)
	}
	if c.options.Clocks {
		ctl.env = append(ctl.env, clockVariable+"="+ctl.clockFile())
	}
	raft := c.options.Raft + "\n"
	if c.options.DiskMiB > 0 {
		if err := makeDisk(filepath.Join(dir, "disk.img"), ctl.Data, c.options.DiskMiB); err != nil {
			return err
		}
		raft += fmt.Sprintf("reserve = \"%dMiB\"\n", max(1, c.options.DiskMiB/16))
	}
	if c.options.Fence != "" {
		raft += fmt.Sprintf("[fence]\nprogram = %q\n", c.options.Fence)
	}
	if c.options.Burst != "" {
		raft += c.burstTable()
	}
	c.controllers = append(c.controllers, ctl)
	if err := os.WriteFile(ctl.clientFile(), fmt.Appendf(nil,
		"controllers = [%q]\nca_file = %q\nauth_socket = %q\n", ctl.Addr, c.caFile(), c.socket()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "gctld.toml"), fmt.Appendf(nil,
		"name = %q\nlisten = %q\nadvertise = %q\ndata_dir = %q\npki_dir = %q\n[raft]\n%s",
		name, ctl.Addr, ctl.Addr, ctl.Data, filepath.Join(dir, "pki"), raft), 0o644)
}

// burstTable returns the table [burst] of gctld.toml.
func (c *Cluster) burstTable() string {
	program, timeout := filepath.Join(c.programs, burstLocal), "1m"
	if c.options.BurstProgram != "" {
		program, timeout = c.options.BurstProgram, "5s"
	}
	return fmt.Sprintf("[burst]\nprogram = %q\nargs = [\"--dir\", %q]\nidentity = true\ntimeout = %q\n", program, c.options.Burst, timeout)
}

func (c *Cluster) layOutNode(i int) error {
	name := fmt.Sprintf("%s%d", c.options.NodePrefix, i+1)
	dir := filepath.Join(c.Dir, fmt.Sprintf("n%d", i+1))
	node := &Node{Name: name, dir: dir, Data: filepath.Join(dir, "data"), Namespace: fmt.Sprintf("%s-%d", networkTag(c.Dir), i+1)}
	for _, d := range []string{dir, node.Data, filepath.Join(dir, "state")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if c.options.Tmpfs && c.options.Runtime == "containerd" {
		if err := syscall.Mount("greylag-test", filepath.Join(dir, "state"), "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("state_dir of %s: %w", name, err)
		}
	}
	node.Process = newProcess(c.logs(), name, c.gnoded, "--config", filepath.Join(dir, "gnoded.toml"))
	if c.options.Boots {
		boot := filepath.Join(dir, "boot_id")
		if err := os.WriteFile(boot, fmt.Appendf(nil, "00000000-0000-4000-8000-%012d\n", i+1), 0o644); err != nil {
			return err
		}
		node.env = append(node.env, bootVariable+"="+boot)
	}
	text := fmt.Sprintf("name = %q\ncontrollers = %s\ndata_dir = %q\nstate_dir = %q\npki_dir = %q\ncdi_dir = %q\nruntime = %q\ncpus = %d\n",
		name, c.addresses(), node.Data, filepath.Join(dir, "state"), filepath.Join(dir, "pki"), filepath.Join(dir, "cdi"), c.options.Runtime, c.options.CPUs)
	if c.options.Memory != "" {
		text += fmt.Sprintf("memory = %q\n", c.options.Memory)
	}
	text += fmt.Sprintf("gres = { %s }\n%s\n", c.options.Gres, c.options.NodeConfig)
	if c.options.Scratch {
		if err := os.MkdirAll(filepath.Join(dir, "scratch"), 0o755); err != nil {
			return err
		}
		text += fmt.Sprintf("scratch_dir = %q\nscratch_reserve = \"0\"\n", filepath.Join(dir, "scratch"))
	}
	if c.options.GPUs > 0 {
		// The nodes' devices have different numbers as far as the machine has them.
		if after := i * c.options.GPUs; after+c.options.GPUs <= simgpu.Max {
			text += fmt.Sprintf("simulated_gpu_offset = %d\n", after)
		}
		text += fmt.Sprintf("[[simulated_gpus]]\ncount = %d\ntype = \"h100\"\nmemory = \"80GiB\"\n", c.options.GPUs)
	}
	if c.options.Runtime == "containerd" {
		text += fmt.Sprintf("[containerd]\nsocket = %q\nnamespace = %q\noci_runtime = %q\n", filepath.Join(containerdDir(c.Dir), "c.sock"), node.Namespace, c.options.OCIRuntime)
	}
	text += fmt.Sprintf("[metrics]\ntextfile = %q\n", node.Textfile())
	c.nodes = append(c.nodes, node)
	return os.WriteFile(filepath.Join(dir, "gnoded.toml"), []byte(text), 0o644)
}
