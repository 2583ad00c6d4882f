package runtime

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
)

// Spec is all that a runtime needs to know to run one task.
type Spec struct {
	ID   TaskID
	User string // for messages and logs only; the kernel is given Owner
	Owner

	// Image is a name that Fetch returned; empty means that the task sees
	// the host's own file system.
	Image string

	// Script is executed by its own #! line; otherwise Args are, with
	// Args[0] looked up in the PATH of Env. Exactly one is set, or neither
	// where the image has an entry point.
	Script []byte
	Args   []string
	// ScriptArgs follow the script.
	ScriptArgs []string

	// Env is the whole environment, NAME=value; in an image its entries
	// override the image's own.
	Env     []string
	WorkDir string // absolute; empty is the image's, or /

	// Stdin, Stdout and Stderr are absolute paths, opened as the user inside the
	// task's own file system. Empty Stdin and Stdout are /dev/null; empty Stderr is the
	// same file as Stdout.
	Stdin, Stdout, Stderr string
	// Append keeps what the files hold; otherwise they are truncated.
	Append bool
	// Umask is the user's; 0 stands for 022, since files that everybody may
	// write are never meant.
	Umask uint32

	// CPUSet lists the cores the task may use ("0-3,8"); empty sets CPUs as
	// a quota instead. 0 CPUs: no limit.
	CPUSet string
	CPUs   int
	// Memory in bytes, swap included; 0: no limit.
	Memory uint64
	// PidsLimit bounds processes and threads; 0: no limit.
	PidsLimit int64

	// Devices are CDI names ("greylag.dev/gpu=0").
	Devices []string
	Mounts  []Mount
	// Socket is a folder of the host that the task sees read-only as SocketDir; "" for none.
	Socket string
	// Programs are files of the host that a task in an image finds in ProgramDir, at the end of its
	// PATH. Other tasks see the host's own.
	Programs []string
	// PrivateTmp gives the task empty /tmp and /var/tmp that end with it.
	PrivateTmp bool
	Labels     map[string]string
}

// The paths at which tasks with a file system of their own see Spec.Socket and Spec.Programs. They are
// below /dev, which is the task's own, so that nothing is created on the host or in an image.
const (
	SocketDir  = "/dev/greylag/job"
	ProgramDir = "/dev/greylag/bin"
)

// Mount shows a folder or file of the host inside the task.
type Mount struct {
	Source, Target string // absolute
	ReadOnly       bool
	// Optional leaves out a source that does not exist.
	Optional bool
}

// MaxScript bounds a script: 16 MiB, four times Slurm's max_script_size.
const MaxScript = 16 << 20

// Check refuses a Spec that contradicts itself or that could make a runtime
// act outside the task. O(size of the Spec).
func (s *Spec) Check() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("task %s: %s: %w", s.ID, fmt.Sprintf(format, args...), ErrInvalid)
	}
	if len(s.Script) > 0 && len(s.Args) > 0 {
		return invalid("both a script and a command")
	}
	if len(s.Script) == 0 && len(s.Args) == 0 && s.Image == "" {
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
	for _, path := range append([]string{s.Socket}, s.Programs...) {
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

// checkStrings refuses what execve cannot carry.
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
