package jobscript

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// Line is a command line that was split but not yet understood.
type Line struct {
	table    *table // nil in the zero value
	found    []getopt.Found
	Operands []string // the script, if one is named, and its arguments
}

// CommandLine splits the words after the program's name. Its error carries a hint.
func CommandLine(words []string) (Line, error) { return commandLine(newTable(false), words) }

func commandLine(t *table, words []string) (Line, error) {
	found, operands, err := getopt.Parse(t.plain, words, getopt.First)
	if err != nil {
		return Line{}, err
	}
	return Line{t, found, operands}, nil
}

// Has reports whether an option, by its long name, is on the command line.
func (l Line) Has(name string) bool {
	return slices.ContainsFunc(l.found, func(f getopt.Found) bool { return f.Option.Long == name })
}

// Value is what the last such option on the command line was given.
func (l Line) Value(name string) string {
	value := ""
	for _, f := range l.found {
		if f.Option.Long == name {
			value = f.Value
		}
	}
	return value
}

// EnvironmentPrefix begins the variables that stand for options: GSUB_ACCOUNT is
// --account, GSUB_GPUS_PER_NODE is --gpus-per-node.
const EnvironmentPrefix = "GSUB_"

// ask is one option at one place.
type ask struct {
	row   *option
	place place
	where string
	line  int // of the script; 0 elsewhere
	as    string
	value string
}

// Resolve works out what is asked for: by the script's lines, by the environment
// (KEY=VALUE each), by the command line, each overruling the ones before. It
// finds every fault; the error is Faults then. Warnings are sentences for people.
// O(options × table).
func Resolve(line Line, environ []string, script Script, now time.Time) (Options, []string, error) {
	r := resolver{table: line.table, now: now}
	if r.table == nil {
		r.table = newTable(false)
	}
	r.script(script)
	r.environment(environ)
	for _, f := range line.found {
		r.asks = append(r.asks, ask{r.row(f.Option.Long), onCommandLine, "", 0, f.As, f.Value})
	}
	options := r.apply()
	r.finish(&options)
	return options, r.warnings, r.faults.err()
}

type resolver struct {
	*table
	now      time.Time
	asks     []ask
	warnings []string
	faults   Faults
}

func (r *resolver) script(s Script) {
	r.warnings = append(append(r.warnings, s.nearly()...), s.lateDirectives()...)
	for _, d := range s.Directives() {
		where := fmt.Sprintf("%s:%d", printable(s.Name), d.Line)
		if d.Broken != "" {
			r.faults = append(r.faults, &Fault{Where: where, Problem: d.Broken, Advice: "close the quote, or put a backslash before it", line: d.Line})
			continue
		}
		found, operands, err := getopt.Parse(r.plain, d.Words, getopt.Anywhere)
		if err != nil {
			r.faults = append(r.faults, lineFault(where, d.Line, err))
			continue
		}
		if len(operands) > 0 && isHetJob(operands[0]) {
			r.faults = append(r.faults, &Fault{Where: where, Problem: hetProblem, Advice: hetAdvice, line: d.Line})
			continue
		}
		if len(operands) > 0 {
			r.faults = append(r.faults, &Fault{Where: where, Problem: fmt.Sprintf("unexpected argument %q", operands[0]), Advice: "options begin with - or --; put a value with blanks into quotes", line: d.Line})
		}
		at := inGSUB
		if d.Slurm {
			at = inSBATCH
		}
		for _, f := range found {
			row := r.row(f.Option.Long)
			if row.onlyTyped {
				r.faults = append(r.faults, &Fault{Where: where, Option: f.As, Problem: "makes sense on the command line only", Advice: "remove it from the script", line: d.Line})
				continue
			}
			r.asks = append(r.asks, ask{row, at, where, d.Line, f.As, f.Value})
		}
	}
	// #GSUB lines win over #SBATCH lines wherever they stand.
	slices.SortStableFunc(r.asks, func(a, b ask) int { return int(a.place - b.place) })
}

func lineFault(where string, line int, err error) *Fault {
	return &Fault{Where: where, Problem: err.Error(), Advice: hint.Of(err), line: line}
}

// slurmPrefix begins the variables that sbatch(1) reads. They count before the script's lines
// and after GSUB_ variables.
const slurmPrefix = "SBATCH_"

// slurmNames are the variables of sbatch(1) whose option has another name.
var slurmNames = map[string]string{
	"TIMELIMIT": "TIME", "ARRAY_INX": "ARRAY", "MEM_PER_NODE": "MEM", "DEBUG": "VERBOSE", "WAIT4SWITCH": "",
	"WAIT_ALL_NODES": "", "NETWORK": "", "POWER": "",
}

func (r *resolver) environment(environ []string) {
	prefixes := []string{slurmPrefix, EnvironmentPrefix}
	if r.sbatch {
		prefixes = prefixes[:1]
	}
	for _, prefix := range prefixes {
		for _, pair := range environ {
			name, value, _ := strings.Cut(pair, "=")
			if rest, found := strings.CutPrefix(name, prefix); found && value != "" { // an empty variable is as good as none
				r.variable(prefix, name, rest, value)
			}
		}
	}
}

// variable takes one variable for the option that the rest of its name stands for.
func (r *resolver) variable(prefix, name, rest, value string) {
	at := inEnvironment
	if prefix == slurmPrefix {
		at = inSlurmEnvironment
		if option, renamed := slurmNames[rest]; renamed {
			rest = option
		}
	}
	o := getopt.Lookup(r.plain, strings.ToLower(strings.ReplaceAll(rest, "_", "-")))
	if o == nil || at == inSlurmEnvironment && r.row(o.Long).onlyTyped {
		r.warnings = append(r.warnings, fmt.Sprintf("%s does not name an option: ignored", printable(name)))
		return
	}
	row := r.row(o.Long)
	if o.Value == "" && (value == "0" || strings.EqualFold(value, "no") || strings.EqualFold(value, "false")) || row.onlyTyped {
		return
	}
	r.asks = append(r.asks, ask{row, at, name, 0, "--" + o.Long, value})
}

// family returns the family that the option's value belongs to: of --gres GPUs only if it names them.
func (a *ask) family() family {
	if g, err := parseGRES(a.value); a.row.Long == "gres" && err == nil && g.hasGPUs {
		return gpuFamily
	}
	return a.row.family
}

// apply carries out the asks, weakest place first.
func (r *resolver) apply() Options {
	var o Options
	at := inSBATCH
	var seen []family
	for i, a := range r.asks {
		if i > 0 && a.place != at {
			seen = nil
		}
		at = a.place
		if a.row.instead != "" {
			r.faults = append(r.faults, &Fault{Where: a.where, Option: a.as, Problem: r.unsupported(), Advice: a.row.instead, line: a.line})
			continue
		}
		if a.row.set == nil && r.sbatch && a.row.harmless != "" {
			continue
		}
		if a.row.set == nil {
			fault := Fault{Where: a.where, Option: a.as, Problem: r.ignored(a.row)}
			r.warnings = append(r.warnings, fault.Error())
			continue
		}
		if f := a.family(); f != noFamily && !slices.Contains(seen, f) {
			o.forget(f)
			seen = append(seen, f)
		}
		err := error(nil)
		if name := a.row.Long; name != "wrap" && name != "env" && name != "export" { // these may hold anything
			err = checkText(a.value)
		}
		if err == nil {
			err = a.row.set(&o, a.value, r.now)
		}
		if err != nil {
			r.faults = append(r.faults, faultOf(a, err))
		}
	}
	return o
}
