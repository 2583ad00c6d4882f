// Package burstcheck implements gctl burst check: the conformance test of provider programs.
//
// It decides how the program is found, and how the results are printed. Package internal/burst/check has the rules.
package burstcheck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/burst/check"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/pkg/cluster"
)

const checkLong = `Tests a provider program against docs/burst-provider.md. It runs the program on
this host, with its own arguments before the name of each call; without PROGRAM
the one of gctld.toml, with its user, environment and timeout. It needs no
cluster.

The check rents one instance of the cheapest offer, or of --offer, and terminates
it. This costs money: it asks for confirmation unless --yes is given. The instance
has the tag of a cluster that does not exist, and joins none. The check terminates
whatever it started, also after an interrupt. Put options before PROGRAM.

  gctl burst check
  gctl burst check --environment AWS_PROFILE=burst /usr/bin/greylag-burst-aws`

// checkOptions are the options of gctl burst check.
type checkOptions struct {
	config, offer, user string
	environment         []string
	yes                 bool
	timeout, wait       time.Duration
}

const (
	defaultCheckWait = 5 * time.Minute
	checkPoll        = time.Second
)

// commands holds the command of one run of gctl.
type commands struct{ *tool.Tool }

// Command returns gctl burst check.
func Command(tools *tool.Tool) *cobra.Command {
	t := commands{tools}
	var o checkOptions
	c := &cobra.Command{
		Use: "check [PROGRAM [ARGUMENTS]]", Short: "Test a provider program", Long: checkLong, Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, args []string) error {
			cfg, err := o.provider(command, args)
			if err != nil {
				return err
			}
			cfg.Log = slog.New(slog.NewTextHandler(t.Stderr, nil))
			return t.run(command.Context(), cfg, &o)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // the program has options of its own
	f.StringVar(&o.config, "config", "", "file that names the program, instead of "+config.ControllerPath)
	f.StringVar(&o.offer, "offer", "", "name of the offer to rent [the cheapest]")
	f.BoolVar(&o.yes, "yes", false, "rent without asking")
	f.StringVar(&o.user, "user", "", "user that the program runs as [this one]")
	f.StringArrayVar(&o.environment, "environment", nil, "NAME=VALUE for the program, which has only PATH and LANG; may be repeated")
	f.DurationVar(&o.timeout, "timeout", config.DefaultController().Burst.Timeout, "time limit of one call")
	f.DurationVar(&o.wait, "wait", defaultCheckWait, "how long the list may take to show a launched or terminated instance")
	return c
}

// run checks the program and prints the results.
func (t commands) run(ctx context.Context, cfg burst.Config, o *checkOptions) error {
	var results []checkResult
	failed, err := check.Run(ctx, check.Config{
		Provider: cfg, Offer: o.offer, Wait: o.wait, Poll: min(checkPoll, o.wait),
		Confirm: func(offer cluster.Offer, currency string) bool { return o.yes || t.confirm(offer, currency) },
		Report: func(r check.Result) {
			results = append(results, checkResult{r.Rule, r.Problem == "", r.Problem})
			if !t.JSON {
				t.printResult(r)
			}
		},
	})
	if t.JSON {
		err = errors.Join(err, t.WriteJSON(results))
	}
	switch {
	case errors.Is(err, check.ErrNotConfirmed):
		t.Complain(check.ErrNotConfirmed.Error(), "answer y, or use --yes")
	case err == nil && failed == 0:
		return nil
	case failed > 0 && ctx.Err() == nil:
		t.Complain(ui.Count(int64(failed), "check")+" failed", "see docs/burst-provider.md")
	default:
		return err
	}
	return ui.Exit(ui.Failed)
}

// checkResult is a rule in JSON.
type checkResult struct {
	Rule    string `json:"rule"`
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
}

// provider returns the program to check: that of the arguments, or that of gctld.toml.
func (o *checkOptions) provider(c *cobra.Command, args []string) (burst.Config, error) {
	if o.wait <= 0 || o.timeout <= 0 {
		return burst.Config{}, &ui.UsageError{Problem: "--wait and --timeout must be above 0", Advice: "see gctl burst check --help"}
	}
	cfg := burst.Config{Environment: o.environment, User: o.user, Timeout: o.timeout}
	if len(args) > 0 {
		path, err := filepath.Abs(args[0])
		cfg.Program, cfg.Args = path, args[1:]
		return cfg, err
	}
	file, err := config.LoadController(o.config)
	if err != nil {
		return cfg, err
	}
	if file.Burst.Program == "" {
		return cfg, &ui.UsageError{Problem: "no PROGRAM, and burst.program of gctld.toml is empty", Advice: "run gctl burst check PROGRAM"}
	}
	cfg.Program, cfg.Args = file.Burst.Program, file.Burst.Args
	cfg.Environment = append(file.Burst.Environment, o.environment...)
	if !c.Flags().Changed("user") {
		cfg.User = file.Burst.User
	}
	if !c.Flags().Changed("timeout") {
		cfg.Timeout = file.Burst.Timeout
	}
	return cfg, nil
}

// confirm asks whether an instance may be rented.
func (t commands) confirm(o cluster.Offer, currency string) bool {
	fmt.Fprintf(t.Stderr, "Rent one instance of %s (%s), for %s %s an hour, for a few minutes? [y/N] ", o.Name, o.Market, cluster.FormatMoney(o.Price), currency)
	answers := bufio.NewScanner(t.Stdin)
	if !answers.Scan() {
		return false
	}
	word := strings.ToLower(strings.TrimSpace(answers.Text()))
	return word == "y" || word == "yes"
}

func (t commands) printResult(r check.Result) {
	if r.Problem == "" {
		fmt.Fprintf(t.Stdout, "ok      %s\n", r.Rule)
		return
	}
	fmt.Fprintf(t.Stdout, "FAILED  %s: %s\n", r.Rule, r.Problem)
}
