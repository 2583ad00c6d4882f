// Package slurmcmd is what the programs with Slurm's names share: their options, messages, exit
// statuses, times and columns.
//
// A program has one table of options. It decides which options are supported, which change nothing
// here, and which are refused; docs/from-slurm.md is generated from the tables. A program never
// ignores an option silently, and prints nothing on standard output when it refuses.
package slurmcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/internal/cli/jobspec"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// Version is the line that every program prints for --version.
const Version = jobspec.SlurmVersion

// OwnFields is the note on the fields that only a job's user and operators see.
const OwnFields = "Fields that other users may not see are empty in their jobs, among them the name, command, directory, dependencies and output. Slurm shows them."

// Effect is what an option of Slurm does here.
type Effect uint8

// The effects.
const (
	Same    Effect = iota // as in Slurm
	Differs               // offered, with a difference that the note names
	Nothing               // accepted: it changes nothing here, for the reason in the note
	Warned                // accepted with a warning: what it asks for is missing
	Refused               // the note is what to do instead
	Added                 // Slurm has no such option
)

// String returns the word for the effect in docs/from-slurm.md.
func (e Effect) String() string {
	return [...]string{Same: "same", Differs: "differs", Nothing: "accepted", Warned: "warns", Refused: "missing", Added: "added"}[e]
}

// Option is an option of one program.
type Option struct {
	getopt.Option
	Effect Effect
	Note   string
}

// Offered reports whether the option has an effect.
func (o *Option) Offered() bool { return o.Effect <= Differs || o.Effect == Added }

// Subcommand is one command of a program that has several.
type Subcommand struct {
	Words  string
	Effect Effect
	Note   string
}

// Program describes one program for its help and for docs/from-slurm.md.
type Program struct {
	Name    string
	Usage   string // the words after the name
	Summary string
	Options []Option
	// Commands are the words of a program such as scontrol.
	Commands []Subcommand
	// Notes are sentences about what differs in addition to the options.
	Notes []string
}

// Command is one run of a program.
type Command struct {
	*ui.Process
	Program Program
	table   []getopt.Option
}

// New returns a run of a program.
func New(p *ui.Process, program Program) *Command {
	program.Options = append(program.Options,
		Option{Option: getopt.Option{Long: "help", Help: "print the options"}},
		Option{Option: getopt.Option{Long: "usage", Help: "print a short help"}},
		Option{Option: getopt.Option{Long: "version", Short: 'V', Help: "print " + Version}},
	)
	c := &Command{Process: p, Program: program}
	for _, o := range program.Options {
		c.table = append(c.table, o.Option)
	}
	return c
}

// Parse reads the command line. done reports that everything was printed already. Options that are
// refused are errors; those that are missing without harm cause a warning.
func (c *Command) Parse() (found []getopt.Found, operands []string, done bool, err error) {
	if err := c.CheckWords(); err != nil {
		return nil, nil, false, err
	}
	found, operands, err = getopt.Parse(c.table, c.Args, getopt.Anywhere)
	if err != nil {
		return nil, nil, false, err
	}
	for _, f := range found {
		switch f.Option.Long {
		case "help", "usage":
			return nil, nil, true, c.PrintHelp()
		case "version":
			return nil, nil, true, c.PrintVersion()
		}
	}
	for _, f := range found {
		if o := c.option(f.Option.Long); o.Effect == Refused {
			return nil, nil, false, &ui.UsageError{Problem: f.As + " is not supported", Advice: o.Note}
		}
	}
	for _, f := range found {
		if o := c.option(f.Option.Long); o.Effect == Warned {
			c.Warn(f.As + ": " + o.Note)
		}
	}
	return found, operands, false, nil
}

// ParseOptions is Parse for a program without operands; advice says what to write instead of one.
func (c *Command) ParseOptions(advice string) (found []getopt.Found, done bool, err error) {
	found, operands, done, err := c.Parse()
	if err == nil && len(operands) > 0 {
		err = &ui.UsageError{Problem: fmt.Sprintf("unexpected argument %q", operands[0]), Advice: advice}
	}
	return found, done, err
}

// Repeat calls print once, or at an interval until it fails or ctx ends.
func Repeat(ctx context.Context, every time.Duration, print func() error) error {
	for {
		if err := print(); err != nil || every == 0 {
			return err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return ui.Exit(ui.Interrupted)
		}
	}
}

func (c *Command) option(long string) *Option {
	for i := range c.Program.Options {
		if c.Program.Options[i].Long == long {
			return &c.Program.Options[i]
		}
	}
	return &Option{}
}

// PrintVersion prints the version line of all programs.
func (c *Command) PrintVersion() error {
	_, err := fmt.Fprintln(c.Stdout, Version)
	return err
}

// PrintHelp prints the options.
func (c *Command) PrintHelp() error {
	shown := make([]getopt.Option, 0, len(c.table))
	for i, o := range c.Program.Options {
		if o.Offered() && o.Help != "" {
			c.table[i].Group = "Options"
			shown = append(shown, c.table[i])
		}
	}
	_, err := fmt.Fprintf(c.Stdout, "Usage: %s %s\n\n%s\n%s", c.Program.Name, c.Program.Usage, c.Program.Summary, getopt.Help(shown))
	return err
}

// Message is an error that is printed without the program's name, as Slurm prints some.
type Message string

// Error returns the text.
func (m Message) Error() string { return string(m) }

// Unreachable words an error of a call that no controller answered in the phrases that tools search
// for, after a prefix such as "slurm_load_jobs error: "; others are returned unchanged.
func Unreachable(prefix string, err error) error {
	if err == nil || !ui.NoAnswer(err) {
		return err
	}
	if connect.CodeOf(err) == connect.CodeDeadlineExceeded {
		return Message(prefix + "Socket timed out on send/recv operation")
	}
	return Message(prefix + "Unable to contact slurm controller (connect failure)")
}

// Finish prints the error, if there is one, and returns the exit status: 1 after an error.
func (c *Command) Finish(ctx context.Context, err error) int {
	status := ui.StatusOf(err)
	var plain Message
	switch {
	case err == nil:
		return 0
	case ui.IsExit(err):
		return int(status)
	case ui.IsInterrupted(ctx):
		return int(ui.Interrupted)
	case errors.As(err, &plain):
		fmt.Fprintln(c.Stderr, plain)
		return 1
	}
	c.Report(err)
	return 1
}

// Report prints an error in one line, or several with one line each.
func (c *Command) Report(err error) {
	for _, line := range Sentences(err) {
		fmt.Fprintf(c.Stderr, "%s: error: %s\n", c.Name(), ui.Printable(line))
	}
}

// Name returns the program's name.
func (c *Command) Name() string { return c.Program.Name }

// Sentences returns the problems of an error, each with its advice.
func Sentences(err error) []string {
	var faults jobscript.Faults
	if errors.As(err, &faults) {
		var lines []string
		for _, f := range faults {
			lines = append(lines, advised(f.Error(), f.Hint()))
		}
		return lines
	}
	message, advice := err.Error(), hint.Of(err)
	var answer *connect.Error
	if errors.As(err, &answer) {
		message = answer.Message()
		if given := answer.Meta().Get(client.HintHeader); given != "" {
			advice = given
		}
	}
	return strings.Split(advised(message, advice), "\n")
}

func advised(problem, advice string) string {
	if advice == "" {
		return problem
	}
	return problem + "; " + advice
}

// Warn prints a warning.
func (c *Command) Warn(text string) {
	fmt.Fprintf(c.Stderr, "%s: warning: %s\n", c.Name(), ui.Printable(text))
}

// Write writes text to standard output.
func (c *Command) Write(text string) error {
	_, err := io.WriteString(c.Stdout, text)
	return err
}

// Ours refuses names of other clusters: -M names this cluster, or all.
func Ours(words, cluster string) error {
	for word := range strings.SplitSeq(words, ",") {
		if word != cluster && !strings.EqualFold(word, "all") {
			return &ui.UsageError{Problem: fmt.Sprintf("no cluster %q", word), Advice: fmt.Sprintf("this is cluster %q; set GREYLAG_CONFIG to use another", cluster)}
		}
	}
	return nil
}
