package grun

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/launch"
	"github.com/greylag/greylag/pkg/cluster"
)

// request is the parsed command line.
type request struct {
	job     uint64
	spec    *greylagv1.StepSpec
	program step.Program

	output, errors, input string
	multiProg             *programFile
	export                string
	minNodes              int32

	label, killOnBadExit, noKill, quit bool
	testOnly, immediate, gpuBound      bool
	programs                           bool // the argument is a file for --multi-prog
	quiet                              bool
	other                              bool // the step is in another job than this process
	hold                               bool // run alloc.Hold

	keep       bool // the step continues when this command is lost
	detachKeys []byte

	wait, limit time.Duration
}

// request parses the command line. done means that it only printed help.
func (p command) request(found []getopt.Found, words []string) (r *request, done bool, err error) {
	r = &request{spec: &greylagv1.StepSpec{}, program: step.Program{MPI: step.MPIPMI2}}
	r.keep = !slices.Contains([]string{"", "0"}, p.Variable("GRUN_DETACH_ON_HANGUP"))
	if err := setDetachKeys(r, cmp.Or(p.Variable("GRUN_DETACH_KEYS"), launch.DefaultDetachKeys)); err != nil {
		return nil, false, &ui.UsageError{Problem: "GRUN_DETACH_KEYS: " + err.Error()}
	}
	if kind := p.Variable("SLURM_MPI_TYPE"); kind == step.MPINone {
		r.program.MPI = kind
	}
	if job := p.inherited("JOB_ID"); job != "" {
		if err := r.setJob(job); err != nil {
			return nil, false, err
		}
	}
	for _, f := range found {
		set := handlers()[f.Option.Long]
		if set == nil {
			done, err = p.other(r, f)
		} else {
			err = set(r, f.Value)
		}
		if done || err != nil {
			return nil, done, usage(f, err)
		}
	}
	if err := p.finish(r, words); err != nil {
		return nil, false, err
	}
	if !r.program.PTY && slices.ContainsFunc(found, func(f getopt.Found) bool { return f.Option.Long == "detach-on-hangup" }) {
		p.Note("--detach-on-hangup has no effect without --pty")
	}
	return r, false, nil
}

// usage adds the option to an error about it.
func usage(f getopt.Found, err error) error {
	if _, is := errors.AsType[*ui.UsageError](err); err == nil || is {
		return err
	}
	return &ui.UsageError{Problem: fmt.Sprintf("%s: %v", f.As, err), Advice: "see --help"}
}

// other handles options that print something, and those that are refused.
func (p command) other(r *request, f getopt.Found) (done bool, err error) {
	switch f.Option.Long {
	case "help":
		_, err := io.WriteString(p.Stdout, "usage: "+p.Program+usageText+getopt.Help(p.options())+statusHelp)
		return true, err
	case "version":
		return true, p.PrintVersion()
	case "mpi":
		switch f.Value {
		case "list":
			_, err := io.WriteString(p.Stdout, "MPI plugin types are...\n\tnone\n\tpmi2\n")
			return true, err
		case step.MPINone, step.MPIPMI2:
			r.program.MPI = f.Value
			return false, nil
		}
		return false, &ui.UsageError{
			Problem: fmt.Sprintf("--mpi=%s is not supported: start Open MPI programs with mpirun PROGRAM in the job", f.Value),
			Advice:  "--mpi=list prints the supported kinds",
		}
	case "jobid":
		own := r.job
		if err := r.setJob(f.Value); err != nil {
			return false, err
		}
		r.other = r.job != own
	case "het-group":
		return false, &ui.UsageError{Problem: "--het-group: heterogeneous jobs are not supported", Advice: "submit a job for each part"}
	case "time":
		r.limit, err = cluster.ParseLimit(f.Value)
		return false, err
	case DisableStatus:
		p.Warn(f.As + " has no effect: " + NoDisableStatus)
	}
	if advice := Refusals()[f.Option.Long]; advice != "" {
		return false, &ui.UsageError{Problem: f.As + " is not supported", Advice: advice}
	}
	if long := f.Option.Long; r.job != 0 && (long == "image" || long == "mount" || strings.HasPrefix(long, "container")) {
		return false, &ui.UsageError{Problem: f.As + ": steps use the image and mounts of their job", Advice: "set --image and --mount at submission"}
	}
	if r.job != 0 && jobOption(f.Option.Long) && !strings.HasPrefix(f.Option.Long, "mem") && f.Option.Long != "comment" {
		p.Note("%s has no effect in an existing job", f.As)
	}
	return false, nil // accepted without effect
}

func (r *request) setJob(word string) (err error) {
	if r.job, err = strconv.ParseUint(word, 10, 63); err != nil || r.job == 0 {
		return &ui.UsageError{Problem: fmt.Sprintf("%q is not a job ID", word), Advice: "write a number, such as 123"}
	}
	return nil
}

// number reads a number of at least least.
func number(into func(*request) *int32, least int32) func(*request, string) error {
	return func(r *request, word string) error {
		n, err := strconv.ParseInt(word, 10, 32)
		if err != nil || int32(n) < least {
			return fmt.Errorf("%q is not a whole number from %d on", word, least)
		}
		*into(r) = int32(n)
		return nil
	}
}

// gpus reads [TYPE:]N.
func gpus(into func(*request, int32)) func(*request, string) error {
	return func(r *request, word string) error {
		var n int32
		err := number(func(*request) *int32 { return &n }, 0)(r, word[strings.LastIndexByte(word, ':')+1:])
		if err == nil {
			into(r, n)
		}
		return err
	}
}

func word(into func(*request) *string) func(*request, string) error {
	return func(r *request, value string) error {
		*into(r) = value
		return nil
	}
}

// boolean sets a switch, which 0 and off clear.
func boolean(into func(*request) *bool) func(*request, string) error {
	return func(r *request, value string) error {
		*into(r) = value != "0" && value != "off"
		return nil
	}
}

// oneOf accepts only some values.
func oneOf(set func(r *request, value string), values ...string) func(*request, string) error {
	return func(r *request, value string) error {
		if !slices.Contains(values, value) {
			return fmt.Errorf("%q is not supported, only %s", value, strings.Join(values, ", "))
		}
		set(r, value)
		return nil
	}
}

func nodes(into func(*request) *[]string) func(*request, string) error {
	return func(r *request, list string) (err error) {
		*into(r), err = hostlist.Expand(list)
		return err
	}
}

// handlers set the request by option.
func handlers() map[string]func(*request, string) error {
	all := map[string]func(*request, string) error{
		"ntasks":          number(func(r *request) *int32 { return &r.spec.Tasks }, 1),
		"ntasks-per-node": number(func(r *request) *int32 { return &r.spec.TasksPerNode }, 1),
		"relative":        number(func(r *request) *int32 { return &r.spec.FirstNode }, 0),
		"cpus-per-task":   number(func(r *request) *int32 { return &r.spec.CpusPerTask }, 1),
		"nodes":           setNodes,
		"nodelist":        nodes(func(r *request) *[]string { return &r.spec.Nodes }),
		"exclude":         nodes(func(r *request) *[]string { return &r.spec.Exclude }),
		"distribution":    oneOf(func(*request, string) {}, "block", "block:block", "block:cyclic", "block:fcyclic"),
		"multi-prog":      boolean(func(r *request) *bool { return &r.programs }),
		"gpus":            gpus(func(r *request, n int32) { r.spec.Gpus = n }),
		"gpus-per-node":   gpus(func(r *request, n int32) { r.spec.GpusPerNode = &n }),
		"gpus-per-task":   gpus(func(r *request, n int32) { r.spec.GpusPerTask = n }),
		"gres":            setGres,
		"gpu-bind":        setGPUBind,
		"cpu-bind":        setCPUBind,
		"exact":           boolean(func(r *request) *bool { return &r.spec.Exact }),
		"overlap":         boolean(func(r *request) *bool { return &r.spec.Overlap }),
		"immediate":       func(r *request, _ string) error { r.immediate = true; return nil },

		"external-launcher": boolean(func(r *request) *bool { return &r.spec.Overlap }),
		"interactive":       boolean(func(r *request) *bool { return &r.spec.Overlap }),
		"output":            word(func(r *request) *string { return &r.output }),
		"error":             word(func(r *request) *string { return &r.errors }),
		"input":             word(func(r *request) *string { return &r.input }),
		"open-mode":         oneOf(func(r *request, mode string) { r.program.Append = mode[0] == 'a' }, "append", "truncate", "a", "t"),
		"label":             boolean(func(r *request) *bool { return &r.label }),
		"unbuffered":        boolean(func(r *request) *bool { return &r.program.Unbuffered }),
		"detach-keys":       setDetachKeys,
		"detach-on-hangup":  boolean(func(r *request) *bool { return &r.keep }),
		"pty":               oneOf(func(r *request, _ string) { r.program.PTY = true }, "0"),

		"kill-on-bad-exit":  oneOf(func(r *request, value string) { r.killOnBadExit = value == "1" }, "0", "1"),
		"wait":              setWait,
		"no-kill":           boolean(func(r *request) *bool { return &r.noKill }),
		"quit-on-interrupt": boolean(func(r *request) *bool { return &r.quit }),
		"chdir":             word(func(r *request) *string { return &r.program.Dir }),
		"export":            word(func(r *request) *string { return &r.export }),
		"job-name":          word(func(r *request) *string { return &r.spec.Name }),
		"send-at-once":      boolean(func(r *request) *bool { return &r.program.AtOnce }),
		"hold-allocation":   boolean(func(r *request) *bool { return &r.hold }),
		"quiet":             boolean(func(r *request) *bool { return &r.quiet }),
		"test-only":         boolean(func(r *request) *bool { return &r.testOnly }),
	}
	return all
}

// setNodes reads N or N-M.
func setNodes(r *request, word string) error {
	least, most, ranged := strings.Cut(word, "-")
	if !ranged {
		most = least
	}
	if err := number(func(r *request) *int32 { return &r.minNodes }, 1)(r, least); err != nil {
		return err
	}
	if err := number(func(r *request) *int32 { return &r.spec.NodeCount }, 1)(r, most); err != nil {
		return err
	}
	if r.minNodes > r.spec.NodeCount {
		return fmt.Errorf("the minimum is larger than the maximum: %q", word)
	}
	return nil
}

func setDetachKeys(r *request, value string) (err error) {
	r.detachKeys, err = launch.ParseDetachKeys(value)
	return err
}

// setGres sets the GPUs of each node. Generic resources are those of the job: its steps share them.
func setGres(r *request, value string) error {
	gpus, named, err := jobscript.ParseGRES(value)
	if err == nil && (named || value == "none") {
		r.spec.GpusPerNode = &gpus
	}
	return err
}

func setWait(r *request, value string) error {
	seconds, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return fmt.Errorf("%q is not a number of seconds", value)
	}
	r.wait = time.Duration(seconds) * time.Second
	return nil
}

// finish sets values that no option sets, from the job and from this process.
func (p command) finish(r *request, words []string) error {
	if len(words) == 0 && !r.testOnly && !r.hold {
		return &ui.UsageError{Problem: "no program given", Advice: fmt.Sprintf("write %s [OPTIONS] PROGRAM [ARGUMENT...]", p.Program)}
	}
	if slices.Contains(words, ":") {
		return &ui.UsageError{Problem: "programs joined by \":\" are not supported: jobs are not heterogeneous", Advice: "use --multi-prog"}
	}
	for option, where := range map[string]string{"--output": r.output, "--error": r.errors, "--input": r.input} {
		if _, err := step.ExpandPath(where, nil); err != nil {
			return asUsage(option, err)
		}
	}
	p.setSizes(r)
	program := &r.program
	if r.programs && r.multiProg == nil && len(words) > 0 {
		file, err := readProgramFile(words[0], int(r.spec.Tasks))
		if err != nil {
			return err
		}
		r.multiProg = file
	}
	program.Args = [][]string{words}
	program.JobName = r.spec.Name
	if r.spec.Name == "" {
		r.spec.Name = programName(words)
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if !filepath.IsAbs(program.Dir) {
		program.Dir = filepath.Join(dir, program.Dir)
	}
	program.Umask = syscall.Umask(0)
	syscall.Umask(program.Umask)
	program.Env, program.Clean = exported(r.export, p.Environ)
	program.CPUsPerTask = int(r.spec.CpusPerTask)
	if r.spec.GpusPerTask > 0 && !r.gpuBound {
		program.GPUs = step.GPUBinding{PerTask: int(r.spec.GpusPerTask)}
	}
	return nil
}

// setSizes sets sizes that no option sets, from the job's variables.
func (p command) setSizes(r *request) {
	variable := func(name string) int32 {
		n, err := strconv.ParseInt(p.Variable(name), 10, 32)
		if err != nil || n < 0 {
			return 0
		}
		return int32(n)
	}
	s := r.spec
	if r.other { // its variables are not known here
		r.program.TasksPerNode = int(s.TasksPerNode)
		return
	}
	narrowed := s.NodeCount > 0 || len(s.Nodes)+len(s.Exclude) > 0 || s.FirstNode > 0
	jobNodes := max(variable("GREYLAG_JOB_NUM_NODES"), variable("GREYLAG_NNODES"))
	if s.NodeCount > jobNodes && r.minNodes <= jobNodes { // a range
		s.NodeCount = jobNodes
	}
	if s.CpusPerTask == 0 {
		s.CpusPerTask = variable("SRUN_CPUS_PER_TASK")
	}
	if s.Tasks == 0 && s.TasksPerNode == 0 {
		s.TasksPerNode = variable("SLURM_NTASKS_PER_NODE")
		if s.TasksPerNode == 0 {
			s.Tasks = max(variable("SLURM_NTASKS"), variable("SLURM_NPROCS"))
		}
	}
	r.program.TasksPerNode = int(s.TasksPerNode) // Slurm's programs expect the variable only if it was given
	if s.Tasks == 0 && s.TasksPerNode == 0 {
		s.TasksPerNode = variable("GREYLAG_NTASKS_PER_NODE")
	}
	if n := variable("SLURM_NNODES"); s.NodeCount == 0 && !narrowed && s.Tasks == 0 {
		s.NodeCount = n
	} else if s.NodeCount == 0 && !narrowed {
		s.NodeCount = min(n, s.Tasks)
	}
	if s.Tasks > 0 && s.NodeCount > s.Tasks {
		p.Warn(fmt.Sprintf("can't run %d processes on %d nodes, setting nnodes to %d", s.Tasks, s.NodeCount, s.Tasks))
		s.NodeCount = s.Tasks
	}
}
