//go:build linux

// Package containerd runs tasks in containers through the node's containerd.
//
// It decides how a Spec becomes an OCI container (file system, identity, devices, limits). It
// decides how a task ended from the record of its ginit, its control group and, failing those,
// containerd. It never decides whether or where a task runs. It keeps nothing in memory that a
// restart would lose: its state lies in the task directories, in containerd and in the kernel.
//
// Rejected, each measured: exit statuses from containerd's events (half are lost on 2.x), from its
// Wait alone (a task that ends while containerd is down is lost on 1.7 and later), output written
// by the shim (as root, following symbolic links), and `/` bound as a task mount (1.6 cannot
// unmount it).
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

// ErrTooOld means that containerd is older than the versions tested with this package.
var ErrTooOld = errors.New("containerd is older than 1.6.20")

// Config configures the use of containerd on this node. Empty fields take the default named.
type Config struct {
	// Address is containerd's socket; /run/containerd/containerd.sock.
	Address string
	// Namespace is the namespace in containerd; "greylag".
	Namespace string
	// StateDir holds task directories and the clone of the host's file system; /run/greylag/tasks.
	// It becomes a mount point that no other mount can contain. It should be on a tmpfs: its
	// content is meaningless after a boot.
	StateDir string
	// ScratchDir holds the private /tmp of tasks; /var/tmp/greylag.
	ScratchDir string
	// GInit is the path of the static ginit program; required.
	GInit string
	// GStepd is the path of the static program that runs steps; empty: tasks have none.
	GStepd string
	// Shim is the path of gshim, in the directory of gshimd: what containerd executes for each
	// task. Empty: containerd's own shim, which takes twice as long.
	Shim string
	// DeviceSpecs lists directories of CDI specs; /run/greylag/cdi.
	DeviceSpecs []string
	// CgroupParent is the group above all tasks: a path ("/greylag") without systemd, a slice
	// ("greylag-jobs.slice") with it. It must differ between nodes on one machine.
	CgroupParent string
	// Systemd reports whether systemd manages the control groups; nil: if it runs and they are of
	// version 2.
	Systemd *bool
	// OCIRuntime is the runc or crun to use, a name on PATH or a path. Empty: crun if it is
	// installed and works with this host's control groups, otherwise runc. crun uses about 10 ms
	// less processor time for each task.
	OCIRuntime string
	crun       bool // set by withDefaults
	// Snapshotter is containerd's snapshotter for images; "overlayfs".
	Snapshotter string
	// Logins is a file of registry credentials for all users of the node, in the form of
	// containers-auth.json(5), which only root may read; empty: none.
	Logins string
	// HostsDir holds hosts.toml files that configure registries, like containerd's own
	// /etc/containerd/certs.d; empty: none.
	HostsDir string
	// Hidden lists further directories of the host that no task may see, besides StateDir,
	// ScratchDir and containerd's state.
	Hidden []string
}

// defaultNamespace is the namespace of a host with one node.
const defaultNamespace = "greylag"

// GroupOf returns the control group for a node's tasks: a slice under systemd, otherwise a path. It
// differs for nodes on one machine, which have different containerd namespaces and may have the
// same name in two clusters.
func GroupOf(node, namespace string) string {
	if namespace != defaultNamespace {
		node += "-" + namespace
	}
	if systemdRuns() {
		return "greylag-jobs-" + node + ".slice"
	}
	return "/greylag/" + node
}

// systemdRuns reports whether systemd runs (sd_booted(3)) and control groups are of version 2. On
// version 1 systemd would remove a task's group before its counters are read.
func systemdRuns() bool {
	_, err := os.Stat("/run/systemd/system")
	groups, unknown := cgroup.Detect()
	return err == nil && unknown == nil && groups.Unified()
}

// namespaceForm is containerd's rule (identifiers.Validate).
var namespaceForm = regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`)

// withDefaults fills empty fields and refuses invalid ones. mixed is cgroup.Hierarchy.Mixed of this
// host.
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
