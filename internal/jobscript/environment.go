package jobscript

import (
	"fmt"
	"slices"
	"strings"
)

// Export says which variables of the submitting process a job gets.
type Export struct {
	None  bool     // not the whole environment
	Names []string // variables to take over, although they are not inherited
	Set   []string // KEY=VALUE
	Image bool     // the job runs in an image
	Login bool     // NONE: sbatch adds the variables of a login shell
}

// parseExport reads sbatch's ALL, NONE, NIL and [ALL,]NAME[=VALUE],...
func parseExport(word string, e *Export) error {
	*e = Export{None: true}
	for _, term := range strings.Split(word, ",") {
		switch strings.ToUpper(term) {
		case "ALL":
			e.None = false
			continue
		case "NONE":
			e.Login = true
			continue
		case "NIL":
			continue
		}
		if err := e.add(term); err != nil {
			return err
		}
	}
	return nil
}

// add reads NAME or NAME=VALUE.
func (e *Export) add(term string) error {
	name, _, valued := strings.Cut(term, "=")
	if !isVariable(name) {
		return advise(fmt.Sprintf("not a variable: %q", term), "write NAME or NAME=VALUE; a value with commas needs --env")
	}
	if strings.ContainsRune(term, 0) {
		return advise(fmt.Sprintf("variable %s contains a NUL byte", name), "leave it out")
	}
	if valued {
		e.Set = append(e.Set, term)
	} else {
		e.Names = append(e.Names, name)
	}
	return nil
}

func isVariable(name string) bool {
	return name != "" && isWord(name, "") && !strings.ContainsAny(name, ".-") && (name[0] < '0' || name[0] > '9')
}

// ours begin the names that Greylag sets in a job, or reads at submission: those
// of the job from which this one may be submitted are not the new job's.
var ours = [...]string{"GREYLAG_", "SLURM_", "GSUB_", "SBATCH_"}

// ofSession are variables that belong to a login session or a service and mean
// nothing on another machine, where a wrong XDG_RUNTIME_DIR does harm.
var ofSession = []string{
	"_", "SHLVL", "OLDPWD", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY",
	"XDG_RUNTIME_DIR", "XDG_SESSION_ID", "DBUS_SESSION_BUS_ADDRESS", "NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
}

// ofAllocation are what an enclosing job set for its own GPUs.
var ofAllocation = []string{"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}

// ofFiles are variables that say where things lie in this host's file system: in an image
// they would hide where they lie there.
var ofFiles = []string{"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"}

// Environment is the job's environment, from that of the submitting process:
// KEY=VALUE each, sorted, one for a key. What is asked for by name is taken over
// whatever it is. O(n log n).
func (e Export) Environment(environ []string) []string {
	values := make(map[string]string, len(environ))
	enclosed := slices.ContainsFunc(environ, func(pair string) bool { return strings.HasPrefix(pair, "GREYLAG_JOB_ID=") })
	for _, pair := range environ {
		name, _, ok := strings.Cut(pair, "=")
		if ok && name != "" && (slices.Contains(e.Names, name) || !e.None && inherited(name, enclosed) && !(e.Image && slices.Contains(ofFiles, name))) {
			values[name] = pair
		}
	}
	for _, pair := range e.Set {
		name, _, _ := strings.Cut(pair, "=")
		values[name] = pair
	}
	all := make([]string, 0, len(values))
	for _, pair := range values {
		all = append(all, pair)
	}
	slices.Sort(all)
	return all
}

func inherited(name string, enclosed bool) bool {
	for _, prefix := range ours {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return !slices.Contains(ofSession, name) &&
		!(enclosed && (slices.Contains(ofAllocation, name) || strings.HasPrefix(name, "PMI_"))) // of the step that submits
}
