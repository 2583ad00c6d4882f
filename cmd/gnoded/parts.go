package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/greylag/greylag/internal/agent"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/metrics/nodes"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/containerd"
	"github.com/greylag/greylag/internal/runtime/process"
)

// parts are the components of the agent on this host.
type parts struct {
	config  agent.Config
	runtime runtime.Runtime
	gpus    gpu.Provider
	metrics *nodes.Node
	close   func()
}

// jobPrograms are the commands that jobs with an image see, where they are installed. If the package
// with Slurm's commands is installed, these are among them: links to ours.
func jobPrograms() (paths []string) {
	for _, name := range []string{"gsubmit", "gqueue", "gcancel", "grun", "gctl"} {
		paths = append(paths, installed(name))
	}
	entries, _ := os.ReadDir(filepath.Dir(installed("gslurm"))) // unreadable: no links
	for _, entry := range entries {
		path := installed(entry.Name())
		if to, err := os.Readlink(path); err == nil && (to == "gslurm" || to == "gsubmit") {
			paths = append(paths, path)
		}
	}
	return paths
}

// assemble creates them. A missing runtime does not end the daemon: the node reports it.
func assemble(cfg config.Node, log *slog.Logger) parts {
	p := parts{metrics: nodes.New(cfg.Metrics.Compat...), config: agent.Config{
		MPSDir: cfg.StateDir + "-mps", MPSControl: "nvidia-cuda-mps-control",
		Name: cfg.Name, StateDir: cfg.StateDir, Report: cfg.Poll.Report, Health: cfg.Poll.Health, Meter: cfg.Poll.Meter,
		CPUs: cfg.CPUs, Memory: cfg.Memory, Features: cfg.Features, Region: cfg.Region, Gres: cfg.Gres,
		ScratchDir: cfg.ScratchDir, ScratchReserve: cfg.ScratchReserve,
		Images:   runtime.Keep{Age: cfg.Images.Keep, Bytes: int64(cfg.Images.Size)},
		Programs: jobPrograms(), CheckpointProgram: installed("gnoded"),
		Prolog: cfg.Prolog, Epilog: cfg.Epilog, HookTimeout: cfg.HookTimeout, LaunchTimeout: cfg.LaunchTimeout, Log: log,
		GPUMemory: cfg.Health.GPUMemory, SelfFenceAfter: cfg.SelfFenceAfter,
		Checks: agent.Checks{
			Program: cfg.Health.Program, Period: cfg.Health.Period, Timeout: cfg.Health.Timeout, Validate: cfg.Health.ValidateProgram, ValidateTimeout: cfg.Health.ValidateTimeout, WhileBusy: cfg.Health.WhileBusy,
			InfiniBand: "/sys/class/infiniband", Ports: cfg.Health.InfiniBandPorts, KernelLog: "/dev/kmsg", Dirs: []string{cfg.StateDir, cfg.DataDir},
		},
	}}
	p.config.Observer = p.metrics
	if cfg.RebootProgram != "" {
		p.config.Reboot = []string{cfg.RebootProgram}
	}
	gpus, closeGPUs := openGPUs(cfg, log)
	rt, closeRuntime, err := openRuntime(cfg, &p.config, log)
	if err != nil {
		rt, closeRuntime = agent.Unavailable{Reason: err}, func() error { return nil }
	}
	p.runtime, p.gpus = rt, gpus
	p.close = func() {
		closeGPUs()
		if err := closeRuntime(); err != nil {
			log.Warn("cannot clean up the runtime", "err", err)
		}
	}
	return p
}

// serve serves the health and the metrics until ctx ends. The node works without them.
func (p parts) serve(ctx context.Context, cfg config.Node, node *agent.Agent, id *pki.Identity, log *slog.Logger) {
	p.metrics.Follow(node.Observe, id.Expires)
	where := nodes.Config{Socket: filepath.Join(cfg.StateDir, "health.sock"), Textfile: cfg.Metrics.Textfile, Listen: cfg.Metrics.Listen}
	if err := p.metrics.Serve(ctx, where, log); err != nil {
		log.Error("health and metrics are not served", "err", err)
	}
}

// makeFolders makes the folders of the state and the data. They belong to root; the folder above the
// state, /run/greylag, is where every user reaches gauthd. The same holds for /var/lib/greylag.
func makeFolders(cfg config.Node) error {
	return errors.Join(pki.MakePrivate(cfg.StateDir), pki.MakePrivate(cfg.DataDir))
}

// tasksOf returns the folder of what tasks need while they run. Tasks do not see it.
func tasksOf(cfg config.Node) string { return filepath.Join(cfg.StateDir, "tasks") }

// socketsOf returns the folder of the sockets for the commands inside tasks.
func socketsOf(cfg config.Node) string { return filepath.Join(tasksOf(cfg), "sockets") }

func openRuntime(cfg config.Node, a *agent.Config, log *slog.Logger) (runtime.Runtime, func() error, error) {
	state := tasksOf(cfg)
	if cfg.Runtime == "process" {
		a.RuntimeName = "process"
		rt, err := process.New(process.Config{StateDir: state, GInit: installed("ginit"), GStepd: installed("gstepd")})
		return rt, func() error { return nil }, err
	}
	a.RuntimeName = "containerd"
	program := cfg.Containerd.OCIRuntime
	if program == "auto" {
		program = "" // containerd.Config's name for it
	}
	shim := ""
	if cfg.Containerd.Shim == "gshim" {
		shim = installed("gshim")
	}
	rt, err := containerd.New(containerd.Config{
		Address: cfg.Containerd.Socket, Namespace: cfg.Containerd.Namespace, OCIRuntime: program, Shim: shim,
		Logins: cfg.Registries.AuthFile, HostsDir: cfg.Registries.HostsDir,
		StateDir: state, ScratchDir: filepath.Join(cfg.DataDir, "tmp"), GInit: installed("ginit"), GStepd: installed("gstepd"),
		DeviceSpecs: []string{cfg.CDIDir}, CgroupParent: containerd.GroupOf(cfg.Name, cfg.Containerd.Namespace),
	})
	if err != nil {
		return nil, nil, err
	}
	a.CheckpointGroup = filepath.Join("/greylag", filepath.Base(containerd.GroupOf(cfg.Name, cfg.Containerd.Namespace)))
	a.Isolated, a.RuntimeName = true, "containerd "+rt.OCIRuntime()
	a.Device = func(index int32) string { return containerd.DeviceKind + "=" + strconv.Itoa(int(index)) }
	a.Describe = func(inventory gpu.Inventory) error { return describe(cfg, inventory, log) }
	return rt, rt.Close, nil
}

// describe lists the devices, and the driver's files, for the runtime, in its types.
func describe(cfg config.Node, inventory gpu.Inventory, log *slog.Logger) error {
	nodes := func(files []gpu.File) []containerd.Node {
		var list []containerd.Node
		for _, file := range files {
			list = append(list, containerd.Node{HostPath: file.Host, Path: file.Task})
		}
		return list
	}
	var gpus []containerd.GPU
	for _, d := range inventory.Devices {
		gpus = append(gpus, containerd.GPU{Index: int(d.Index), UUID: d.UUID, Nodes: nodes(d.Files)})
	}
	var driver []containerd.Node
	if len(gpus) > 0 && len(cfg.SimulatedGPUs) == 0 {
		var err error
		if driver, err = containerd.DriverFiles(); err != nil {
			log.Error("jobs in images cannot use the GPUs: install the driver's libraries, run ldconfig, and restart gnoded", "err", err)
		}
	}
	return containerd.WriteDevices(cfg.CDIDir, gpus, nodes(inventory.Common), driver)
}

// layoutsOf returns the MIG layouts of the node's GPUs.
func layoutsOf(cfg config.Node) gpu.Layouts {
	layouts := gpu.Layouts{}
	for _, m := range cfg.MIG {
		for _, index := range m.GPUs {
			layouts[int32(index)] = m.Layout
		}
		if len(m.GPUs) == 0 {
			layouts[gpu.AllGPUs] = m.Layout
		}
	}
	return layouts
}

func openGPUs(cfg config.Node, log *slog.Logger) (gpu.Provider, func()) {
	if len(cfg.SimulatedGPUs) == 0 {
		helper := gpu.NewHelper(installed("gnvml"), cfg.Name, gpu.Limits{}, log)
		helper.SetLayouts(layoutsOf(cfg))
		return helper, helper.Close
	}
	var groups []gpu.Group
	for _, g := range cfg.SimulatedGPUs {
		groups = append(groups, gpu.Group{Count: g.Count, Type: g.Type, Memory: g.Memory, Domain: g.NVLinkDomain})
	}
	simulated := gpu.NewSimulatedAfter(cfg.Name, filepath.Join(cfg.StateDir, "gpus"), cfg.SimulatedGPUOffset, groups)
	simulated.SetLayouts(layoutsOf(cfg))
	return simulated, func() {}
}

// installed returns the path of a program that is installed with this one.
func installed(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name // through PATH, then
	}
	return filepath.Join(filepath.Dir(self), name)
}
