package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ErrUnsupported reports that this machine lacks what an option needs; the message names it.
var ErrUnsupported = errors.New("this machine cannot run such a cluster")

// defaultPrefix is the default prefix of node names.
const defaultPrefix = "n"

// Options describe a cluster; the zero value is one controller and no node.
type Options struct {
	// Dir holds everything, is created, and is removed by Stop. The path must be short, because
	// sockets are below it. Empty: a new folder in /tmp.
	Dir string
	// Name is the cluster's; empty: "test".
	Name string
	// Controllers are 1, 3 or 5; 0 means 1.
	Controllers int
	// Nodes each have GPUs simulated GPUs, CPUs (0: the machine's) and Memory such as "4GiB"
	// (empty: the machine's). They are called NodePrefix1 and so on; empty: n.
	Nodes      int
	NodePrefix string
	GPUs       int
	CPUs       int
	Memory     string
	// Gres is put into the table gres of gnoded.toml, such as "nvme = 2".
	Gres string
	// NodeConfig is put into gnoded.toml, such as "launch_timeout = \"1m\"".
	NodeConfig string
	// Boots gives each node a boot ID of its own, that of the file $GREYLAG_BOOT_ID, which a stand-in for a reboot
	// program can change: gnoded is built with the tag bootfault, whatever Programs says.
	Boots bool
	// Scratch gives each node a scratch directory.
	Scratch bool
	// Runtime runs tasks: "containerd" (needs root) or "process" (refuses root); empty: the
	// possible one. OCIRuntime is runc or crun; empty: runc if installed.
	Runtime    string
	OCIRuntime string
	// Tmpfs keeps in memory what is in /run on a node, the state_dir of the nodes, and all of
	// containerd's own files, which saves 16 syncs a container. Only with containerd.
	Tmpfs bool
	// Namespaces gives each controller a network namespace, so that it can be
	// cut off; needs root.
	Namespaces bool
	// DiskMiB gives each controller a file system of this size of its own, which
	// can be frozen and filled; 0: none. Needs root.
	DiskMiB int
	// Clocks allows shifting the controllers' clocks: gctld is built with the tag clockfault,
	// whatever Programs says.
	Clocks bool
	// Fence is fence.program of the controllers.
	Fence string
	// Raft is put into the [raft] table of gctld.toml, such as
	// "snapshot_threshold = 64".
	Raft string
	// Burst is the state directory of greylag-burst-local, from which the controllers lease nodes; empty: from none.
	Burst string
	// BurstProgram is called in its place, with the same arguments and a time limit of 5 seconds; empty:
	// greylag-burst-local.
	BurstProgram string
	// Policy is TOML that is applied when the cluster is up.
	Policy string
	// Programs is the folder that holds the programs; empty: $GREYLAG_BIN, and
	// without that they are built.
	Programs string
	// Keep makes the cluster outlive this process, and restarts controllers that end asking for it,
	// as a service manager does; Attach ends it.
	Keep bool
	// Log is called for each event; nil: none.
	Log io.Writer
}

// withDefaults fills in defaults from the machine and checks what it cannot do.
func (o Options) withDefaults() (Options, error) {
	if o.Controllers == 0 {
		o.Controllers = 1
	}
	if o.Name == "" {
		o.Name = "test"
	}
	if o.NodePrefix == "" {
		o.NodePrefix = defaultPrefix
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Runtime == "" {
		o.Runtime = "process"
		if os.Geteuid() == 0 { // it runs nothing for this user
			o.Runtime = "containerd"
		}
	}
	if o.OCIRuntime == "" {
		o.OCIRuntime = ociRuntime()
	}
	if o.Nodes > 0 && o.Runtime == "containerd" {
		if err := Containers(); err != nil {
			return o, err
		}
	}
	if o.Namespaces {
		if err := needs("network namespaces", "ip", "iptables", "nsenter"); err != nil {
			return o, err
		}
	}
	if o.DiskMiB > 0 {
		if err := needs("disks of their own", "mkfs.ext4", "mount", "fsfreeze"); err != nil {
			return o, err
		}
	}
	return o, nil
}

// Containers returns why tasks cannot run in containers here; nil when they can.
func Containers() error { return needs("containers", "containerd", ociRuntime()) }

// ociRuntime returns runc if installed; some distributions have only crun.
func ociRuntime() string {
	if _, err := lookPath("runc"); err != nil {
		return "crun"
	}
	return "runc"
}

// needs requires root and programs.
func needs(what string, programs ...string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: %s need root", ErrUnsupported, what)
	}
	for _, program := range programs {
		if _, err := lookPath(program); err != nil {
			return fmt.Errorf("%w: %s need %s", ErrUnsupported, what, program)
		}
	}
	return nil
}

// makeDir creates the cluster's folder. Users other than the starter must be able to reach its
// content.
func (o Options) makeDir() (string, error) {
	if o.Dir == "" {
		dir, err := os.MkdirTemp("/tmp", "gl-")
		if err != nil {
			return "", err
		}
		return dir, os.Chmod(dir, 0o755)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return "", err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return "", fmt.Errorf("%s is not empty: is a cluster running there?", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}
