package gsim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/trace"
)

// input holds the options of a log and of the machine that it is replayed on.
type input struct {
	*tool
	machine
	table     string
	bad       string
	sort      bool
	procs     string
	estimates string
	seed      uint64
	first     int
	progress  bool
}

func (in *input) flags(c *cobra.Command) {
	in.machine.flags(c)
	f := c.Flags()
	f.StringVar(&in.table, "cluster", "", "table of an archive")
	f.StringVar(&in.bad, "bad", "refuse", "invalid lines: refuse (the log) or skip")
	f.BoolVar(&in.sort, "sort", false, "sort jobs by submission first")
	f.StringVar(&in.procs, "processors", "cpu", "meaning of a log's processors: cpu or gpu")
	f.StringVar(&in.estimates, "estimates", "", "SWF log whose users' requested times are drawn for jobs without one")
	f.Uint64Var(&in.seed, "seed", 1, "random seed (--estimates; in gsim replay also --faults)")
	f.BoolVar(&in.progress, "progress", false, "show progress even if standard error is not a terminal")
	f.IntVar(&in.first, "first", 0, "read only the first N jobs of the log")
}

// oneOf requires one of two words as the value of an option.
func oneOf(name, word, a, b string) error {
	if word == a || word == b {
		return nil
	}
	return &ui.UsageError{Problem: "--" + name + " " + word + " is not known", Advice: "write " + a + " or " + b}
}

// words checks options that take one of a few words.
func (in *input) words() error {
	if err := oneOf("bad", in.bad, "refuse", "skip"); err != nil {
		return err
	}
	if err := oneOf("processors", in.procs, "cpu", "gpu"); err != nil {
		return err
	}
	if in.first < 0 {
		return &ui.UsageError{Problem: fmt.Sprintf("--first %d is not a number of jobs", in.first), Advice: "0 is all jobs of the log"}
	}
	return nil
}

// showsProgress reports whether progress is shown.
func (in *input) showsProgress() bool { return in.progress || in.terminal() }

// load returns the log, and the machine of the options or of its header.
func (in *input) load(name string) (*trace.Trace, *sim.Machine, error) {
	fleet, err := in.fleet()
	if err != nil {
		return nil, nil, err
	}
	for _, odd := range in.warnings {
		in.Warn(odd)
	}
	return in.read(name, fleet)
}

// read reads the log, and returns the machine of its header if none was described.
func (in *input) read(name string, fleet *sim.Machine) (*trace.Trace, *sim.Machine, error) {
	o := trace.Options{Member: in.table, Skip: in.bad == "skip", Sort: in.sort}
	if fleet != nil {
		o.Largest = trace.Size{Procs: orNone(fleet.CPUs()), GPUs: orNone(fleet.GPUs())}
		if in.procs == "gpu" {
			o.Largest.Procs = o.Largest.GPUs
		}
	}
	log, err := readLog(name, o)
	if err != nil {
		return nil, nil, err
	}
	if fleet == nil {
		if log.MaxProcs == 0 {
			return nil, nil, &ui.UsageError{Problem: "no machine is described", Advice: "describe it with --flat, --nodes or --machine"}
		}
		in.flat = log.MaxProcs
		fleet, o.Largest.Procs = sim.Flat(log.MaxProcs), log.MaxProcs
		if log, err = readLog(name, o); err != nil {
			return nil, nil, err
		}
	}
	if in.first > 0 && in.first < len(log.Jobs) {
		log.Jobs = log.Jobs[:in.first]
	}
	if in.estimates != "" {
		model, err := readLog(in.estimates, trace.Options{Skip: true, Sort: true})
		if err != nil {
			return nil, nil, err
		}
		trace.NewModel(model).Apply(log, in.seed)
		in.Note("requested times are drawn from those of %s, seed %d", filepath.Base(in.estimates), in.seed)
	}
	in.say(log)
	return log, fleet, nil
}

// orNone returns the largest size of a job; -1, none, for a machine without.
func orNone(n int32) int32 {
	if n == 0 {
		return -1
	}
	return n
}

// say prints what was changed in a log.
func (in *input) say(log *trace.Trace) {
	if log.Bad.Count > 0 {
		in.Warn(ui.Count(int64(log.Bad.Count), "line") + " left out as invalid")
		for _, line := range strings.Split(log.Bad.String(), "\n") {
			in.Warn(line)
		}
	}
	if log.Capped > 0 {
		in.Note("%s ran for longer than requested: killed at the requested time", ui.Count(int64(log.Capped), "job"))
	}
	if log.Guessed > 0 && in.estimates == "" {
		in.Note("%s without a requested time: the run time is used", ui.Count(int64(log.Guessed), "job"))
	}
}

func readLog(name string, o trace.Options) (*trace.Trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, &ui.UsageError{Problem: err.Error()}
	}
	defer f.Close()
	log, err := trace.Read(f, o)
	if errors.Is(err, trace.ErrNoGPUs) {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("%s: %v", name, err), Advice: "describe a machine with GPUs: --nodes N --gpus-per-node 8, or --machine"}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return log, nil
}
