// Package doctor looks at one host and says what is wrong with it.
//
// It decides, from this host's configuration files, keys, sockets, disks, control
// groups and devices, and from what the controllers answer, what keeps the host
// from doing its part, and what to do about each. It looks at the parts that the
// host is set up for: commands, login node, compute node, controller. It never
// changes anything, on the host or in the cluster, and never asks as anybody but
// the user who runs it and the daemons whose keys that user may read.
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

	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/pki"
)

// Level is how bad a finding is.
type Level string

// The levels, best first.
const (
	Good    Level = "good"
	Warning Level = "warning" // it works, but not for ever, or not all of it
	Fault   Level = "fault"   // the host cannot do its part
)

// The parts of a host.
const (
	Commands   = "commands"
	Login      = "login"
	Node       = "node"
	Controller = "controller"
)

// Finding is what one check found. The field names are those of --json, and stay.
type Finding struct {
	Part   string `json:"part"`
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"` // what to do; "" where all is good
}

// Host is where to look. The zero value is this host as it is installed.
type Host struct {
	// The daemons' files; "" is the standard one. A part whose file is named is
	// looked at in any case, others where their file or their key is there.
	Controller, Node, Auth string
	// GPUs is the program that asks the driver for them; "" is gnvml beside this one.
	GPUs string
	// Shim is what containerd runs beside each task where it is Greylag's own, its daemon
	// beside it; "" is gshim beside this program.
	Shim string
}

// Examine looks at everything. It ends within a minute whatever hangs.
func Examine(ctx context.Context, host Host) []Finding {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	x := &exam{host: host}
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
	chosen   string // the OCI runtime that gnoded would choose; "" if unknown
}

func (x *exam) note(level Level, check, advice, format string, args ...any) {
	x.findings = append(x.findings, Finding{x.part, check, level, fmt.Sprintf(format, args...), advice})
}

func (x *exam) good(check, format string, args ...any) { x.note(Good, check, "", format, args...) }

// failed notes an error that is nil, or a fault, or only that this user may not look.
// It reports whether there is none.
func (x *exam) failed(check, advice string, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		x.note(Warning, check, "run gctl doctor as root", "cannot be looked at: %s", err)
	default:
		x.note(Fault, check, cmp.Or(client.Hint(err), advice), "%s", err)
	}
	return true
}

// configured reports whether the host is set up for a part: its file is named or
// there, or it holds the key of the part. broken files are noted.
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
			x.note(Fault, "configuration", "mend the file; gctl config check "+path+" tells when it is right", "%s", f)
		}
	case err != nil:
		x.failed("configuration", "gctl config check "+path+" looks at it alone", err)
	case absent != nil:
		x.good("configuration", "%s is absent: the defaults hold", path)
	default:
		x.good("configuration", "%s", path)
	}
	return true
}

// folder checks that a folder can be written and that its disk has room.
func (x *exam) folder(check, dir string) {
	there := dir // or the nearest folder above that exists: daemons make theirs
	for {
		info, err := os.Stat(there)
		if err == nil && !info.IsDir() {
			x.note(Fault, check, "move the file away", "%s is no folder", there)
			return
		}
		if err == nil || !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there) {
			break
		}
		there = filepath.Dir(there)
	}
	if err := writable(there); err != nil {
		x.failed(check, "the daemon writes there: mount it for writing, or set another folder", &fs.PathError{Op: "write", Path: there, Err: err})
		return
	}
	free, total, err := room(there)
	const advice = "make room, or move the folder to a larger disk"
	switch {
	case err != nil:
		x.failed(check, "", err)
	case free < leastRoom:
		x.note(Fault, check, advice, "%s has %s of room left, of %s", dir, rough(free), rough(total))
	case free < lowRoom || free < total/20:
		x.note(Warning, check, advice, "%s has %s of room left, of %s", dir, rough(free), rough(total))
	default:
		x.good(check, "%s, %s of %s free", dir, rough(free), rough(total))
	}
}

// beside is the path of a program that is installed with this one.
func beside(name string) string {
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
		program = beside("gnvml")
	}
	helper := gpu.NewHelper(program, "host", gpu.Limits{}, nil)
	defer helper.Close()
	return helper.Inventory(ctx)
}

// groups checks that the kernel's control groups are there, with what jobs need.
func (x *exam) groups(crun bool) {
	h, err := cgroup.Detect()
	if x.failed("control groups", "mount them: on a host with systemd they are; in a container give it those of the host", err) {
		return
	}
	if crun && h.Mixed() {
		x.note(Fault, "control groups", "set containerd.oci_runtime to runc, or boot with version 2 alone: systemd.unified_cgroup_hierarchy=1", "version 1 and 2 both have controllers, which crun refuses")
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
