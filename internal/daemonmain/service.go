// Package daemonmain is the main function of a daemon with one configuration file and no
// subcommands.
//
// It decides from the command line which file is read, the exit status, and how late the kernel may
// wake the threads of a daemon that asks for that (Relax). It never decides what the daemon does,
// and reads no setting itself.
package daemonmain

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"

	"github.com/greylag/greylag/internal/client"
)

// Daemon is one program. C is its configuration.
type Daemon[C any] struct {
	Name  string // gnoded
	About string // its purpose, in one sentence for its help
	Path  string // the default configuration file
	Load  func(path string) (C, error)
	Serve func(ctx context.Context, cfg C, stderr io.Writer) error
}

// The exit statuses, as in the help.
const (
	stopped = 0
	failed  = 1
	misused = 2
)

// Main runs the daemon until it ends or ctx does, and returns the exit status. It writes errors to
// stderr, with a hint if they have one.
func (d Daemon[C]) Main(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet(d.Name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "", "read this `file` instead of "+d.Path)
	flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: %s [--config FILE]\n\n%s\nExit status: 0 stopped by a signal, 1 failed, 2 wrong usage or configuration.\n", d.Name, d.About)
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return stopped
	case err != nil:
		return misused
	case flags.NArg() > 0:
		flags.Usage()
		return misused
	}
	cfg, err := d.Load(*path)
	if err != nil {
		d.complain(stderr, err)
		return misused
	}
	if err := d.Serve(ctx, cfg, stderr); err != nil {
		d.complain(stderr, err)
		return failed
	}
	return stopped
}

// Ended logs a stop without error, and returns err.
func Ended(log *slog.Logger, err error) error {
	if err == nil {
		log.Info("stopped")
	}
	return err
}

func (d Daemon[C]) complain(stderr io.Writer, err error) {
	fmt.Fprintf(stderr, "%s: error: %v\n", d.Name, err)
	if hint := client.Hint(err); hint != "" {
		fmt.Fprintf(stderr, "%s: hint: %s\n", d.Name, hint)
	}
}
