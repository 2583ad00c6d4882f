package jobscript

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// SbatchLine splits the words after sbatch. Its table has the options of gsubmit, those that only
// sbatch has, and those that pyxis adds to sbatch. Of the environment only SBATCH_ variables count.
func SbatchLine(words []string) (Line, error) { return commandLine(newTable(true), words) }

// SbatchOption is an option of sbatch, for its documentation.
type SbatchOption struct {
	getopt.Option
	Refused  string // what to do instead
	Harmless string // why it changes nothing here
	Missing  string // what its user does without, as a warning says
}

// SbatchOptions is the table of sbatch.
func SbatchOptions() []SbatchOption { return newTable(true).described() }

// SallocLine splits the words after salloc: the options of sbatch, and those that only salloc has.
func SallocLine(words []string) (Line, error) { return commandLine(sallocTable(), words) }

// SallocOptions is the table of salloc.
func SallocOptions() []SbatchOption { return sallocTable().described() }

func sallocTable() *table {
	return tableOf(append(newTable(true).rows,
		option{Option: getopt.Option{Long: "no-shell"}, instead: "keep the nodes with sbatch --wrap 'sleep infinity', and run srun --jobid=JOB on them"},
		option{Option: getopt.Option{Long: "immediate", Short: 'I', Value: "SECONDS", Absent: "0"}, instead: "sbatch --test-only prints when a job would start; Ctrl-C ends the wait"},
		option{Option: getopt.Option{Long: "kill-command", Short: 'K', Value: "SIGNAL", Absent: "TERM"}, missing: "the command gets SIGHUP when the job ends"},
		option{Option: getopt.Option{Long: "bell"}, missing: "no bell rings"},
		option{Option: getopt.Option{Long: "no-bell"}, harmless: "no bell rings"},
	), true)
}

// described returns the options for their documentation.
func (t *table) described() []SbatchOption {
	var all []SbatchOption
	for _, row := range t.rows {
		all = append(all, SbatchOption{row.Option, row.instead, row.harmless, row.missing})
	}
	return all
}

// Own reports whether an option of sbatch's table is gsubmit's own.
func (o *SbatchOption) Own() bool {
	switch o.Long {
	case "gpu-mem", "gpu-share", "max-price", "region", "connect", "every-node", "image", "mount", "env", "secret", "checkpoint", "checkpoint-signal", "checkpoint-every", "requeue-at-limit", "elastic", "resize-signal", "restart", "retry", "retry-on",
		"burst", "burst-max-cost", "burst-regions", "burst-market", "stage-in", "stage-out":
		return true
	}
	return false
}

// sbatchRows adds the options that only sbatch has, and removes those that choose gsubmit's output. They
// replace rows of the same name.
func sbatchRows(rows []option) []option {
	own := append(pyxisRows(),
		option{Option: getopt.Option{Long: "clusters", Short: 'M', Aliases: []string{"cluster"}, Value: "NAMES", Help: "this cluster, or all"},
			set: text(func(o *Options) *string { return &o.Clusters })},
		option{Option: getopt.Option{Long: "get-user-env", Value: "MODE", Absent: "L", Help: "add the variables of a login shell, read when the job is submitted"},
			set: func(o *Options, _ string, _ time.Time) error { o.LoginEnv = true; return nil }},
		option{Option: getopt.Option{Long: "usage", Help: "print a short help"}, onlyTyped: true, set: turn(func(*Options) {})},
	)
	all := make([]option, 0, len(rows)+len(own))
	for _, row := range rows {
		replaced := row.Long == "json" || row.Long == "quote"
		for i := range own {
			replaced = replaced || own[i].Long == row.Long
		}
		if !replaced {
			all = append(all, row)
		}
	}
	return append(all, own...)
}

// pyxisRows are the options that pyxis adds to sbatch.
func pyxisRows() []option {
	row := func(long, value, instead, harmless, help string, set func(*Options, string, time.Time) error) option {
		return option{Option: getopt.Option{Long: long, Value: value, Group: "Containers (pyxis)", Help: help}, instead: instead, harmless: harmless, set: set}
	}
	const lasting = "the file system of an image lasts as long as its job: build an image, and name it with --container-image"
	const homes = "the home directory is always mounted"
	return []option{
		row("container-image", "IMAGE", "", "", "as --image; REGISTRY#IMAGE is REGISTRY/IMAGE", func(o *Options, v string, _ time.Time) (err error) {
			o.Image, err = pyxisImage(v)
			return err
		}),
		row("container-workdir", "DIRECTORY", "", "", "directory of the script; it must exist on the node", func(o *Options, v string, _ time.Time) error {
			if o.TaskDir = v; !path.IsAbs(v) {
				return advise(fmt.Sprintf("%q is not an absolute path", v), "write a path that begins with /")
			}
			return checkText(v)
		}),
		row("container-env", "NAMES", "", "", "pass these variables even where the image sets them", func(o *Options, v string, _ time.Time) error {
			o.pyxisEnvs = append(o.pyxisEnvs, strings.Split(v, ",")...)
			return nil
		}),
		row("container-mounts", "LIST", "", "", "comma-separated list of --mount values", func(o *Options, v string, _ time.Time) error {
			for word := range strings.SplitSeq(v, ",") {
				if err := o.addMount(word); err != nil {
					return err
				}
			}
			return nil
		}),
		row("container-name", "NAME", lasting, "", "", nil), row("container-save", "FILE", lasting, "", "", nil),
		row("container-unshare", "LIST", "namespaces are fixed: omit it", "", "", nil),
		{Option: getopt.Option{Long: "container-mount-home"}, missing: homes}, {Option: getopt.Option{Long: "no-container-mount-home"}, missing: homes},
		row("container-remap-root", "", "a job runs as its user: install software when you build the image", "", "", nil),
		row("no-container-remap-root", "", "", "a job always runs as its user", "", nil),
		row("container-writable", "", "", "the file system of an image is always writable, as far as its permissions allow", "", nil),
		row("container-readonly", "", "the file system of an image is always writable: omit it", "", "", nil),
		row("container-entrypoint", "", "the script runs without the image's entry point: call it in the script", "", "", nil),
		row("no-container-entrypoint", "", "", "the entry point of an image never runs", "", nil),
		row("container-entrypoint-log", "", "", "the entry point of an image never runs", "", nil),
	}
}

// pyxisImage converts pyxis's [docker://][REGISTRY#]IMAGE[:TAG] or path.
func pyxisImage(word string) (string, error) {
	word = strings.TrimPrefix(strings.ReplaceAll(word, `\#`, "#"), "docker://")
	registry, image, named := strings.Cut(word, "#")
	switch {
	case strings.HasSuffix(word, ".sqsh") || strings.HasSuffix(word, ".squashfs"):
		return "", advise("squashfs images are not supported: "+word, "save the image as an OCI archive, and write --container-image oci-archive:FILE")
	case word == "" || named && (registry == "" || image == ""):
		return "", advise(fmt.Sprintf("not an image: %q", word), "write REGISTRY#NAME:TAG, or NAME:TAG")
	case named && strings.Contains(registry, "@"):
		return "", advise("the image names a user of the registry", "log in once with podman login or docker login, and omit the user")
	case named:
		word = registry + "/" + image
	}
	return word, checkText(word)
}

// The message about heterogeneous jobs, in the script and on the command line.
const (
	hetProblem = "heterogeneous jobs are not supported"
	hetAdvice  = "submit one job with the same resources on each node, or one job for each component"
)

// HetJob is the fault of a command line with several components, separated by a colon.
func HetJob() *Fault { return &Fault{Problem: hetProblem, Advice: hetAdvice} }

func isHetJob(word string) bool { return word == "hetjob" || word == "packjob" }

// unsupported is the problem with an option that is refused.
func (r *resolver) unsupported() string {
	if r.sbatch {
		return "is not supported"
	}
	return "is an sbatch option that is not supported"
}

// SlurmDefaults sets the name and the output file as sbatch does where they are not given.
func (o *Options) SlurmDefaults(script Script) {
	if o.Name == "" && script.Name == StandardInput {
		o.Name = "sbatch"
	}
	if o.Output != "" {
		return
	}
	o.Output = "slurm-%j"
	if o.Array != "" {
		o.Output = "slurm-%A_%a"
	}
	if o.EveryNode {
		o.Output += "-%n"
	}
	o.Output += ".out"
}

// Foreign warns of lines for other batch systems, which set nothing.
func (s Script) Foreign() []string {
	for n, line := range s.comments() {
		for _, mark := range []string{"#PBS ", "#BSUB "} {
			if strings.HasPrefix(string(line), mark) {
				return []string{fmt.Sprintf("%s:%d: %slines are not read: write #SBATCH lines", printable(s.Name), n, mark)}
			}
		}
	}
	return nil
}

// Over returns the environment from which a job gets its own: a login shell's, with the exported
// variables of the submitting process over it. It then exports all.
func (e *Export) Over(login, environ []string) []string {
	own := Export{None: e.None, Names: e.Names}.Environment(environ)
	e.None = false
	seen := make(map[string]bool, len(own))
	for _, pair := range own {
		name, _, _ := strings.Cut(pair, "=")
		seen[name] = true
	}
	for _, pair := range login {
		if name, _, _ := strings.Cut(pair, "="); !seen[name] {
			own = append(own, pair)
		}
	}
	return own
}
