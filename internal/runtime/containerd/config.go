//go:build linux

// Package containerd runs tasks in containers, through the node's containerd.
//
// It decides how a Spec becomes an OCI container (file system, identity,
// devices, limits), and how a task ended, from the record its ginit left, its
// control group and, failing those, containerd. It never decides whether or
// where a task runs, and keeps nothing in memory that a restart would miss: all
// it knows lies in the task folders, in containerd and in the kernel.
//
// Rejected, each measured: exit statuses from
// containerd's events (half are lost on 2.x), from its Wait alone (a task that
// ends while containerd is down is lost on 1.7 and later), output written by
// the shim (as root, following symbolic links), and `/` bound as a task mount
// (1.6 cannot unmount it).
package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/oci"
)

// ErrTooOld says that containerd is older than what this package was tried with.
var ErrTooOld = errors.New("containerd is older than 1.6.20")

// Config is how this node uses containerd. Empty fields take the default named.
type Config struct {
	// Address of containerd's socket; /run/containerd/containerd.sock.
	Address string
	// Namespace inside containerd; "greylag".
	Namespace string
	// StateDir holds task folders and the clone of the host's file system;
	// it is made a mount point that no other mount can contain.
	// /run/greylag/tasks. On a tmpfs: what it holds means nothing after a boot.
	StateDir string
	// ScratchDir holds the private /tmp of tasks; /var/tmp/greylag.
	ScratchDir string
	// GInit is the path of the static ginit program; required.
	GInit string
	// Shim is the path of gshim, beside which gshimd lies: what containerd executes for
	// each task. Empty: containerd's own shim, which takes twice as long.
	Shim string
	// DeviceSpecs are folders of CDI specs; /run/greylag/cdi.
	DeviceSpecs []string
	// CgroupParent is the group above all tasks: a path ("/greylag") without
	// systemd, a slice ("greylag-jobs.slice") with it. It must differ between
	// nodes that share a machine.
	CgroupParent string
	// Systemd says whether systemd manages the control groups; nil: where it runs and
	// they are of version 2.
	Systemd *bool
	// OCIRuntime is the runc or crun to use, a name on PATH or a path. Empty:
	// crun where it is installed and works with this host's control groups,
	// else runc; crun takes about 10 ms of processor time less for each task.
	OCIRuntime string
	crun       bool // whether it is crun, as withDefaults has found
	// Snapshotter for images; "overlayfs".
	Snapshotter string
	// Logins is a file of logins to registries for every user of the node, in the
	// form of containers-auth.json(5), which only root may read; empty: none.
	Logins string
	// HostsDir holds hosts.toml files that say how registries are reached, as
	// containerd's own /etc/containerd/certs.d does; empty: none.
	HostsDir string
	// Hidden are folders of the host that no task may see, beside StateDir and
	// ScratchDir; containerd's own state.
	Hidden []string
}

// defaultNamespace is where a host's one node keeps its tasks in containerd.
const defaultNamespace = "greylag"

// GroupOf names the control group for a node's tasks, apart from those of other nodes on
// the same machine, which have containerd namespaces of their own and, in another cluster,
// perhaps the same name: a slice where systemd keeps them, else a path.
func GroupOf(node, namespace string) string {
	if namespace != defaultNamespace {
		node += "-" + namespace
	}
	if systemdRuns() {
		return "greylag-jobs-" + node + ".slice"
	}
	return "/greylag/" + node
}

// systemdRuns tells whether systemd keeps the control groups: where it runs
// (sd_booted(3)) and they are of version 2. Of version 1 it tolerates others' beside its
// own, and would remove a task's before anybody has read what it counted.
func systemdRuns() bool {
	_, err := os.Stat("/run/systemd/system")
	groups, unknown := cgroup.Detect()
	return err == nil && unknown == nil && groups.Unified()
}

// namespaceForm is containerd's own rule (identifiers.Validate).
var namespaceForm = regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`)

// withDefaults fills what is empty and refuses what cannot work. mixed is
// cgroup.Hierarchy.Mixed of this host.
func (c Config) withDefaults(mixed bool) (Config, error) {
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	fill(&c.Address, "/run/containerd/containerd.sock")
	fill(&c.Namespace, defaultNamespace)
	fill(&c.StateDir, "/run/greylag/tasks")
	fill(&c.ScratchDir, "/var/tmp/greylag")
	fill(&c.Snapshotter, "overlayfs")
	if len(c.DeviceSpecs) == 0 {
		c.DeviceSpecs = []string{"/run/greylag/cdi"}
	}
	if c.Hidden == nil {
		c.Hidden = []string{"/run/containerd", "/var/lib/containerd"}
	}
	if c.Systemd == nil {
		runs := systemdRuns()
		c.Systemd = &runs
	}
	if *c.Systemd {
		fill(&c.CgroupParent, "greylag-jobs.slice")
	} else {
		fill(&c.CgroupParent, "/greylag")
	}
	if !namespaceForm.MatchString(c.Namespace) {
		return Config{}, fmt.Errorf("%w: namespace %q", runtime.ErrUnfit, c.Namespace)
	}
	if *c.Systemd {
		if _, err := cgroup.SlicePath(c.CgroupParent); err != nil {
			return Config{}, fmt.Errorf("%w: %w", runtime.ErrUnfit, err)
		}
	}
	if c.Logins != "" {
		if _, err := nodeLogins(c.Logins); err != nil {
			return Config{}, fmt.Errorf("%w: %w", runtime.ErrUnfit, err)
		}
	}
	for _, dir := range append([]string{c.StateDir, c.ScratchDir, c.GInit}, c.Hidden...) {
		if !filepath.IsAbs(dir) {
			return Config{}, fmt.Errorf("%w: %q is not an absolute path", runtime.ErrUnfit, dir)
		}
	}
	var err error
	c.OCIRuntime, c.crun, err = oci.Find(c.OCIRuntime, mixed)
	return c, err
}
