// Package doctor examines one host and reports its problems.
//
// It decides, from this host's configuration files, keys, sockets, disks, control groups and
// devices, and from the controllers' answers, what prevents the host from doing its part, and how
// to fix each problem. It checks the parts that the host is set up for: commands, login node,
// compute node, controller. It never changes anything, on the host or in the cluster, and acts only
// as the user who runs it and the daemons whose keys that user may read.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/pki"
)

// Level is the severity of a finding.
type Level string

// The levels, best first.
const (
	Good    Level = "good"
	Warning Level = "warning" // it works, but not permanently, or not all of it
	Fault   Level = "fault"   // the host cannot do its part
)

// The parts of a host.
const (
	Commands   = "commands"
	Login      = "login"
	Node       = "node"
	Controller = "controller"
)

// Finding is the result of one check. The field names are those of --json, and stable.
type Finding struct {
	Part   string `json:"part"`
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"` // the fix; "" if there is no problem
}

// Host is the host to examine. The zero value is this host as it is installed.
type Host struct {
	// The daemons' files; "" is the standard one. A part whose file is named is always checked,
	// others if their file or their key exists.
	Controller, Node, Auth string
	// GPUs is the program that asks the driver for them; "" is the gnvml installed with this
	// program.
	GPUs string
	// Shim is what containerd runs for each task if it is Greylag's own, with its daemon in the
	// same folder; "" is the gshim installed with this program.
	Shim string
}

// Examine checks everything. It ends within a minute whatever hangs.
func Examine(ctx context.Context, host Host) []Finding {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	x := &exam{host: host, systemd: tool.SystemdRuns()}
	for _, part := range []struct {
		name string
		look func(context.Context)
	}{{Commands, x.commands}, {Login, x.login}, {Node, x.node}, {Controller, x.controller}} {
		x.part = part.name
		part.look(ctx)
	}
	return x.findings
}

// exam is one examination.
type exam struct {
	host     Host
	part     string
	findings []Finding
	systemd  bool   // it starts the daemons
	chosen   string // the OCI runtime that gnoded would choose; "" if unknown
}

func (x *exam) note(level Level, check, advice, format string, args ...any) {
	x.findings = append(x.findings, Finding{x.part, check, level, fmt.Sprintf(format, args...), advice})
}

func (x *exam) good(check, format string, args ...any) { x.note(Good, check, "", format, args...) }

// failed notes an error, if it is not nil, as a fault, or as a missing permission of this user. It
// reports whether the error is nil.
func (x *exam) failed(check, advice string, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		x.note(Warning, check, "run gctl doctor as root", "cannot check: %s", err)
	default:
		x.note(Fault, check, cmp.Or(client.Hint(err), advice), "%s", err)
	}
	return true
}

// configured reports whether the host is set up for a part: its file is named or exists, or it
// holds the key of the part. It notes broken files, and a missing one that systemd requires.
func (x *exam) configured(named, standard, pkiDir string, err error) bool {
	path := named
	if path == "" {
		path = standard
	}
	_, absent := os.Stat(path)
	if named == "" && absent != nil {
		if _, err := os.Stat(filepath.Join(pkiDir, pki.IdentityFile)); pkiDir == "" || errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	var faults strict.Faults
	switch {
	case errors.As(err, &faults):
		for _, f := range faults {
			x.note(Fault, "configuration", "fix the file, then run gctl config check "+path, "%s", f)
		}
	case err != nil:
		x.failed("configuration", "run gctl config check "+path, err)
	case absent != nil && x.systemd && x.part != Commands:
		x.note(Fault, "configuration", restores[x.part], "this host has the key of a %s, but %s does not exist, without which systemd does not start the daemon", partText(x.part), path)
		return false
	case absent != nil:
		x.good("configuration", "%s does not exist: using defaults", path)
	default:
		x.good("configuration", "%s", path)
	}
	return true
}

// partText returns the kind of host of a part, in words.
func partText(part string) string {
	if part == Login {
		return "login node"
	}
	return part
}

// restores names, for each part, how its missing configuration file is written.
var restores = map[string]string{
	Controller: "run gctl init as root: it writes the files that are missing and starts the daemons",
	Login:      "on a controller, run gctl init as root: it writes the files that are missing; on another host, join again with the output of gctl cluster token --auth --name NAME --replace",
	Node:       "join again with the output of gctl cluster token --node --name NAME --replace; or create an empty file, and start gnoded: it knows its controllers",
}

// folder checks that a folder can be written and that its disk has space.
func (x *exam) folder(check, dir string) {
	existing := nearestExisting(dir)
	if info, err := os.Stat(existing); err == nil && !info.IsDir() {
		x.note(Fault, check, "move the file away", "%s is not a directory", existing)
		return
	}
	if err := writable(existing); err != nil {
		x.failed(check, "the daemon writes there: mount it read-write, or set another directory", &fs.PathError{Op: "write", Path: existing, Err: err})
		return
	}
	free, total, err := freeSpace(existing)
	const advice = "free space, or move the directory to a larger disk"
	switch {
	case err != nil:
		x.failed(check, "", err)
	case free < leastFree:
		x.note(Fault, check, advice, "%s has %s left of %s", dir, ui.SizeText(free), ui.SizeText(total))
	case free < lowFree || free < total/20:
		x.note(Warning, check, advice, "%s has %s left of %s", dir, ui.SizeText(free), ui.SizeText(total))
	default:
		x.good(check, "%s, %s of %s free", dir, ui.SizeText(free), ui.SizeText(total))
	}
}

// nearestExisting returns dir or its nearest existing parent, since daemons create missing directories.
func nearestExisting(dir string) string {
	for {
		_, err := os.Stat(dir)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// tmpfs warns if dir is not on a tmpfs.
func (x *exam) tmpfs(check, dir string) {
	var volume unix.Statfs_t
	if err := unix.Statfs(nearestExisting(dir), &volume); err != nil || volume.Type == unix.TMPFS_MAGIC || volume.Type == unix.RAMFS_MAGIC {
		return // folder reports the error
	}
	x.note(Warning, check, "set state_dir in gnoded.toml to a directory on a tmpfs, such as /run/greylag", "%s is not on a tmpfs: jobs with secrets cannot run here", dir)
}

// installed returns the path of a program that is installed with this one.
func installed(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}

// inventory lists the GPUs that the driver knows.
func (x *exam) inventory(ctx context.Context) (gpu.Inventory, error) {
	program := x.host.GPUs
	if program == "" {
		program = installed("gnvml")
	}
	helper := gpu.NewHelper(program, "host", gpu.Limits{}, nil)
	defer helper.Close()
	return helper.Inventory(ctx)
}

// groups checks that the kernel's control groups have what jobs need.
func (x *exam) groups(crun bool) {
	h, err := cgroup.Detect()
	if x.failed("control groups", "mount them: systemd does so; in a container pass in those of the host", err) {
		return
	}
	if crun && h.Mixed() {
		x.note(Fault, "control groups", "set containerd.oci_runtime to runc, or boot with version 2 only: systemd.unified_cgroup_hierarchy=1", "version 1 and 2 both have controllers, which crun refuses")
		return
	}
	version := "version 1"
	if h.Unified() {
		version = "version 2"
	}
	x.good("control groups", "%s", version)
}

// words joins the names of a list for people.
func words(list []string) string { return strings.Join(list, ", ") }
