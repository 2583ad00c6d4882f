package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli"
	"github.com/greylag/greylag/internal/config"
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

func (t *tool) config() *cobra.Command {
	all := &cobra.Command{
		Use: "config", Short: "Find mistakes in configuration files", GroupID: host, Args: choose,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	kind := ""
	check := &cobra.Command{
		Use: "check [FILE...]", Short: "Check files, those of /etc/greylag if none is named",
		Long: "Checks configuration files and their drop-ins by the code that the daemons read\nthem with, and prints every fault. What a file is for follows from its name.",
		RunE: func(_ *cobra.Command, files []string) error { return t.check(kind, files) },
	}
	check.Flags().StringVar(&kind, "kind", "", "what the files are for: gctld, gnoded, gauthd, client or topology")
	all.AddCommand(check)
	return all
}

func (t *tool) check(kind string, files []string) error {
	if len(files) == 0 {
		for _, path := range []string{config.ControllerPath, config.NodePath, config.AuthPath, config.ClientPath} {
			if _, err := os.Stat(path); err == nil {
				files = append(files, path)
			}
		}
		if len(files) == 0 {
			t.Note("there are no files in /etc/greylag: all settings are the defaults")
			return nil
		}
	}
	wrong := false
	for _, path := range files {
		name := kind
		if name == "" {
			name = filepath.Base(path)
			name = name[:len(name)-len(filepath.Ext(name))]
		}
		load, ok := kinds()[name]
		if !ok {
			return &cli.UsageError{Problem: fmt.Sprintf("what is %s for?", path), Advice: "write --kind gctld, gnoded, gauthd, client or topology"}
		}
		err := load(path)
		var faults config.Faults
		switch {
		case err == nil:
			if err := t.said(nil, "%s: good", path); err != nil {
				return err
			}
			continue
		case errors.As(err, &faults):
			for _, fault := range faults {
				t.Complain(fault.String(), "")
			}
		case errors.Is(err, fs.ErrNotExist):
			t.Complain("no file "+path, "")
		default:
			t.Complain(err.Error(), "")
		}
		wrong = true
	}
	if wrong {
		return cli.Exit(cli.Usage)
	}
	return nil
}
