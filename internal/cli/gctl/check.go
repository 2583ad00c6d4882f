package gctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/clusterdoc"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/config/strict"
)

// kinds are the configuration files, by name.
func kinds() map[string]func(path string) error {
	return map[string]func(string) error{
		"gctld":  func(path string) error { _, err := config.LoadController(path); return err },
		"gnoded": func(path string) error { _, err := config.LoadNode(path); return err },
		"gauthd": func(path string) error { _, err := config.LoadAuth(path); return err },
		"client": func(path string) error { _, err := config.LoadClient(path); return err },

		"topology": checkTopologyFile,
	}
}

func (t commands) config() *cobra.Command {
	all := &cobra.Command{
		Use: "config", Short: "Check configuration files", GroupID: tool.GroupHost, Args: tool.RequireSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	kind, offline := "", false
	check := &cobra.Command{
		Use: "check [FILE...]", Short: "Check files [those of /etc/greylag]",
		Long: `Checks configuration files and their drop-ins with the parser of the daemons,
and prints every error. The kind of a file is derived from its name, otherwise
from its contents. A policy is also compared with the cluster; removed
partitions with jobs and unknown nodes, GPU types and accounts cause warnings.
Nothing is changed.`,
		RunE: func(c *cobra.Command, files []string) error { return t.check(c.Context(), kind, offline, files) },
	}
	check.Flags().StringVar(&kind, "kind", "", "kind of the files: gctld, gnoded, gauthd, client, topology, accounts or policy")
	check.Flags().BoolVar(&offline, "offline", false, "do not compare a policy with the cluster")
	all.AddCommand(check)
	return all
}

func (t commands) check(ctx context.Context, kind string, offline bool, files []string) error {
	if len(files) == 0 {
		for _, path := range []string{config.ControllerPath, config.NodePath, config.AuthPath, config.ClientPath} {
			if _, err := os.Stat(path); err == nil {
				files = append(files, path)
			}
		}
		if len(files) == 0 {
			t.Note("no files in /etc/greylag: all settings have their defaults")
			return nil
		}
	}
	all := kinds()
	all["accounts"] = t.checkAccounts
	all["policy"] = func(path string) error { return t.checkPolicy(ctx, path, offline) }
	worst := ui.OK
	for _, path := range files {
		if path == "" {
			return &ui.UsageError{Problem: "empty file name", Advice: "give its path"}
		}
		load, err := t.loader(path, kind, all)
		if err != nil {
			return err
		}
		if load == nil {
			return &ui.UsageError{Problem: fmt.Sprintf("cannot determine the kind of %s", path), Advice: "write --kind gctld, gnoded, gauthd, client, topology, accounts or policy"}
		}
		if err := load(path); err != nil {
			worst = max(worst, t.faulty(ctx, err))
		} else if err := t.Printed(nil, "%s: OK", path); err != nil {
			return err
		}
	}
	return ui.Exit(worst)
}

// loader returns the reader of a file of a kind. Without a kind, it decides by the file's name,
// else by its content; nil if neither tells.
func (t commands) loader(path, kind string, all map[string]func(string) error) (func(string) error, error) {
	load := all[cmp.Or(kind, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))]
	if load != nil || kind != "" || path == "-" { // can be read only once
		return load, nil
	}
	text, err := t.ReadText(path)
	return all[clusterdoc.KindOf([]byte(text))], err
}

// faulty prints what is wrong with a file. The status is Usage, unless a cluster that had to be
// asked did not answer.
func (t commands) faulty(ctx context.Context, err error) ui.Status {
	var faults strict.Faults
	switch {
	case errors.As(err, &faults):
		for _, fault := range faults {
			t.Complain(fault.String(), "")
		}
	default:
		return max(ui.Usage, ui.Status(t.Finish(ctx, ui.Unread(err))))
	}
	return ui.Usage
}

// checkAccounts is gctl config check for an accounts file. Only loading checks that the accounts are
// a tree.
func (t commands) checkAccounts(path string) error {
	text, err := t.ReadText(path)
	if err != nil {
		return err
	}
	_, _, err = clusterdoc.ReadAccounts(tool.FileLabel(path), []byte(text))
	return err
}
