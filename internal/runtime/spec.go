package runtime

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
)

// Spec is all that a runtime needs to run one task.
type Spec struct {
	ID   TaskID
	User string // for messages and logs only; the kernel uses Owner
	Owner

	// Image is a name that Fetch returned; empty: the file system of the host.
	Image string

	// Script is executed through its #! line; otherwise Args are, with Args[0] looked up in the
	// PATH of Env. Exactly one is set, or neither if the image has an entry point.
	Script []byte
	Args   []string
	// Hold runs no program: the task only waits for steps, until it gets SIGTERM.
	Hold bool
	// ScriptArgs are the arguments of the script.
	ScriptArgs []string

	// Env is the whole environment, NAME=value. With an image its entries override the image's.
	Env     []string
	WorkDir string // absolute; empty: the image's, or /

	// Stdin, Stdout and Stderr are absolute paths in the task's own file system, opened as the
	// user. Empty Stdin and Stdout are /dev/null; empty Stderr is the same file as Stdout.
	Stdin, Stdout, Stderr string
	// Append appends to existing files; otherwise they are truncated.
	Append bool
	// Umask is the user's; 0 means 022, since world-writable files are never intended.
	Umask uint32

	// CPUSet lists the CPUs of the task ("0-3,8"); empty: CPUs is a quota. 0 CPUs: no limit.
	CPUSet string
	CPUs   int
	// Memory in bytes includes swap; 0: no limit.
	Memory uint64
	// PidsLimit limits processes and threads; 0: no limit.
	PidsLimit int64

	// Devices lists CDI names ("greylag.dev/gpu=0").
	Devices []string
	Mounts  []Mount
	// Socket is a directory of the host that the task sees read-only as SocketDir; "" for none.
	Socket string
	// MPS is the pipe directory of an MPS daemon, which the task sees as MPSDir; "" for none. SharedMemory is the directory
	// that it then has as /dev/shm, as the daemon and its other clients have; "": one of its own.
	MPS, SharedMemory string
	// Programs are files of the host that a task with an image finds in ProgramDir, at the end of
	// its PATH. Other tasks see the host's own.
	Programs []string
	// PrivateTmp gives the task an empty /tmp and /var/tmp that are deleted at its end.
	PrivateTmp bool
	Labels     map[string]string
}

// Paths at which tasks with their own file system see Spec.Socket and Spec.Programs. They are below
// /dev, which is the task's own, so that nothing is created on the host or in an image.
const (
	SocketDir  = "/dev/greylag/job"
	ProgramDir = "/dev/greylag/bin"
	MPSDir     = "/dev/greylag/mps"
)

// Mount mounts a directory or file of the host in the task.
type Mount struct {
	Source, Target string // absolute
	ReadOnly       bool
	// Optional skips a source that does not exist.
	Optional bool
}

// MaxScript is the maximum size of a script: 16 MiB, four times Slurm's max_script_size.
const MaxScript = 16 << 20

// Check refuses a Spec that contradicts itself or could make a runtime act outside the task. O(size
// of the Spec).
func (s *Spec) Check() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("task %s: %s: %w", s.ID, fmt.Sprintf(format, args...), ErrInvalid)
	}
	if len(s.Script) > 0 && len(s.Args) > 0 {
		return invalid("both a script and a command")
	}
	if len(s.Script) == 0 && len(s.Args) == 0 && s.Image == "" && !s.Hold {
		return invalid("neither a script nor a command")
	}
	if len(s.Script) > MaxScript {
		return invalid("script of %d bytes, the limit is %d", len(s.Script), MaxScript)
	}
	if len(s.Script) > 0 && !bytes.HasPrefix(s.Script, []byte("#!")) {
		return invalid("script does not begin with #!")
	}
	if len(s.Args) > 0 && s.Args[0] == "" {
		return invalid("empty command")
	}
	for _, path := range []string{s.WorkDir, s.Stdin, s.Stdout, s.Stderr} {
		if path != "" && !filepath.IsAbs(path) {
			return invalid("path %q is not absolute", path)
		}
	}
	for _, path := range append([]string{s.Socket, s.MPS, s.SharedMemory}, s.Programs...) {
		if path != "" && !filepath.IsAbs(path) {
			return invalid("path %q is not absolute", path)
		}
	}
	for _, m := range s.Mounts {
		if !filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Target) || filepath.Clean(m.Target) == "/" {
			return invalid("mount %q on %q: want absolute paths, and not on /", m.Source, m.Target)
		}
	}
	if s.CPUs < 0 || s.PidsLimit < 0 || s.Umask > 0o777 {
		return invalid("negative limit or umask above 0777")
	}
	return s.checkStrings(invalid)
}

// checkStrings refuses strings that execve cannot pass.
func (s *Spec) checkStrings(invalid func(string, ...any) error) error {
	for _, list := range [][]string{s.Args, s.ScriptArgs, s.Env, {s.WorkDir, s.Stdin, s.Stdout, s.Stderr, s.CPUSet}} {
		for _, text := range list {
			if strings.IndexByte(text, 0) >= 0 {
				return invalid("%.40q holds a NUL byte", text)
			}
		}
	}
	for _, entry := range s.Env {
		if strings.IndexByte(entry, '=') <= 0 {
			return invalid("environment entry %.40q is not NAME=value", entry)
		}
	}
	return nil
}
