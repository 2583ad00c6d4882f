package gctld

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/daemonmain"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
)

// The exit statuses. Besides these, the log ends the process with 75 when its disk
// hangs and 76 when its data is damaged (raftlog.ExitStalled, ExitDamaged).
const (
	exitOK     = 0 // ended by a signal, or done
	exitFailed = 1
	exitUsage  = 2 // wrong usage, configuration or version
	// exitRemoved means that this controller was removed from the cluster and must not be
	// restarted.
	exitRemoved = 77
)

const usage = `usage: gctld [run] [--config FILE]           serve as a controller
       gctld --dev [--dir DIR]               a whole cluster on this machine, with simulated GPUs
       gctld init [--config FILE]            make this controller the first of a new cluster
       gctld snapshot [--config FILE] [-o F] back up a stopped cluster of one controller
       gctld restore [--config FILE] -i F    restore a cluster from a backup, into an empty data_dir
       gctld recover [--config FILE] [--yes] make a stopped controller the only one left

Flags, the same for all:
`

const after = `
Exit status: 0 ended by a signal or done, 1 failed, 2 wrong usage or configuration, or
a version more than one minor version apart from another controller's, 75 the disk hangs (start again), 76 the data is damaged (start again: it is set
aside and the controller has to be added again), 77 this controller was removed from
the cluster (do not start it again; empty data_dir and pki_dir to join with a new token).
`

// settings is the command line.
type settings struct {
	verb    string
	path    string
	dev     bool
	dir     string
	output  string
	input   string
	history bool
	yes     bool
	dataDir, pkiDir,
	level string
}

// Main is the program gctld. It returns the exit status.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	s, code := parse(args, stderr)
	if s == nil {
		return code
	}
	if s.dev && s.verb == "run" {
		return report(stderr, RunDev(ctx, s.dir, s.level, stdout, stderr))
	}
	cfg, err := config.LoadController(s.path)
	if err != nil {
		fmt.Fprintf(stderr, "gctld: error: %v\n", err)
		return exitUsage
	}
	s.override(&cfg)
	log := cfg.Log.Logger(stderr)
	slog.SetDefault(log)
	if s.verb != "run" { // by root, for the daemon's user
		defer func() { code = max(code, report(stderr, pki.Adopt(cfg.DataDir, cfg.PKIDir))) }()
	}
	switch {
	case s.verb == "init":
		err = Init(cfg, log)
	case s.verb == "snapshot":
		err = s.snapshot(ctx, cfg, log, stdout)
	case s.verb == "restore":
		err = s.restore(ctx, cfg, log)
	case s.verb == "recover":
		err = s.recover(cfg, log, stdout)
	case cfg.Dev:
		err = RunDev(ctx, cfg.DataDir, cfg.Log.Level, stdout, stderr)
	default:
		err = s.run(ctx, cfg, log)
	}
	if errors.Is(err, raftlog.ErrRemoved) {
		return s.reportRemoved(stderr, cfg, err)
	}
	return report(stderr, err)
}

// reportRemoved prints that this controller was removed, and the commands that join it again.
func (s *settings) reportRemoved(stderr io.Writer, cfg config.Controller, err error) int {
	options := ""
	if s.path != "" {
		options = " --config " + s.path
	}
	fmt.Fprintf(stderr, "gctld: error: %s\n", strings.ReplaceAll(err.Error(), "raftlog: ", ""))
	fmt.Fprintf(stderr, "gctld: hint: to use this host as a controller again, make a token on another controller: gctl cluster token --controller; "+
		"then empty %s and %s here and run: gctl join TOKEN@CONTROLLER%s\n", cfg.DataDir, cfg.PKIDir, options)
	return exitRemoved
}

// report prints an error as all programs do.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "gctld: error: %v\n", err)
	if hint := client.Hint(err); hint != "" {
		fmt.Fprintf(stderr, "gctld: hint: %s\n", hint)
	}
	if errors.Is(err, ErrVersionSkew) {
		return exitUsage
	}
	return exitFailed
}

func parse(args []string, stderr io.Writer) (*settings, int) {
	s := &settings{verb: "run"}
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		s.verb, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("gctld", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.path, "config", "", "read this `file` instead of "+config.ControllerPath)
	flags.StringVar(&s.dataDir, "data-dir", "", "`directory` instead of the file's data_dir")
	flags.StringVar(&s.pkiDir, "pki-dir", "", "`directory` instead of the file's pki_dir")
	flags.StringVar(&s.level, "log-level", "", "debug, info, warn or error instead of the file's")
	flags.BoolVar(&s.dev, "dev", false, "run: controller, node and gauthd together, without configuration")
	flags.StringVar(&s.dir, "dir", "", "--dev: keep everything in this `directory` (default: a temporary one)")
	flags.StringVar(&s.output, "o", "", "snapshot: write this `file` instead of standard output")
	flags.StringVar(&s.input, "i", "", "restore: read this `file`")
	flags.BoolVar(&s.history, "with-history", false, "snapshot: include finished jobs, their scripts and the journals")
	flags.BoolVar(&s.yes, "yes", false, "recover: apply the plan")
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
		fmt.Fprint(stderr, after)
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil, exitOK
	case err != nil:
		return nil, exitUsage
	}
	known := map[string]bool{"run": true, "init": true, "snapshot": true, "restore": true, "recover": true}
	levels := map[string]bool{"": true, "debug": true, "info": true, "warn": true, "error": true}
	if flags.NArg() > 0 || !known[s.verb] || !levels[s.level] {
		flags.Usage()
		return nil, exitUsage
	}
	return s, exitOK
}

// override applies the paths and the log level of the command line.
func (s *settings) override(cfg *config.Controller) {
	for _, o := range []struct {
		to    *string
		value string
	}{{&cfg.DataDir, s.dataDir}, {&cfg.PKIDir, s.pkiDir}, {&cfg.Log.Level, s.level}} {
		if o.value != "" {
			*o.to = o.value
		}
	}
}

// run is the controller's daemon.
func (s *settings) run(ctx context.Context, cfg config.Controller, log *slog.Logger) error {
	daemonmain.Relax()
	if err := checkVersions(ctx, cfg); err != nil {
		return err
	}
	defer daemonmain.FollowLevel(log, func() (config.Log, error) {
		now, err := config.LoadController(s.path)
		s.override(&now)
		return now.Log, err
	})()
	d, err := Open(cfg, log)
	if err != nil {
		return err
	}
	if err := recordVersion(cfg); err != nil { // a full disk must not stop a controller
		log.Warn("cannot record which version uses the data", "err", err)
	}
	return d.Serve(ctx)
}

func (s *settings) snapshot(ctx context.Context, cfg config.Controller, log *slog.Logger, stdout io.Writer) error {
	to := stdout
	var file *os.File
	if s.output != "" {
		var err error
		if file, err = os.OpenFile(s.output, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err != nil {
			return err
		}
		to = file
	}
	info, err := Snapshot(ctx, cfg, log, to, s.history)
	if file != nil {
		err = errors.Join(err, file.Sync(), file.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(s.output))
		}
	}
	if err == nil {
		log.Info("backed up", "cluster", info.ClusterID, "index", info.Index, "bytes", info.Size, "at", info.Taken.Format(time.RFC3339))
	}
	return err
}

// errNoBackup is returned by restore without -i.
var errNoBackup = errors.New("no backup given: name its file with -i")

func (s *settings) restore(ctx context.Context, cfg config.Controller, log *slog.Logger) error {
	if s.input == "" {
		return errNoBackup
	}
	file, err := os.Open(s.input)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := Restore(ctx, cfg, log, file)
	if err != nil {
		return fmt.Errorf("restore %s: %w", s.input, err)
	}
	log.Info("restored", "cluster", info.ClusterID, "index", info.Index, "from", info.Taken.Format(time.RFC3339))
	return nil
}

// errNotSure is returned by recover without --yes.
var errNotSure = errors.New("recover makes this controller the only member of the cluster; entries that only other controllers hold are lost, and those must never be started again with their data; run it again with --yes")

func (s *settings) recover(cfg config.Controller, log *slog.Logger, stdout io.Writer) error {
	if !s.yes {
		text, err := Recoverable(cfg, log)
		if err != nil {
			return err
		}
		fmt.Fprint(stdout, text)
		return errNotSure
	}
	report, err := Recover(cfg, log)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, report)
	return nil
}
