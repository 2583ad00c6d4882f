package doctor

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
)

// command holds the commands of this package in one run of gctl.
type command struct{ *tool.Tool }

// Command returns gctl doctor.
func Command(t *tool.Tool) *cobra.Command { return command{t}.doctor() }

const doctorLong = `Checks this host and prints each problem with its fix: configuration,
certificates, clocks, sockets, disks, the connection to the controllers, and on
a compute node containerd, control groups and GPUs. It checks the roles that
are set up on the host and changes nothing. Run it as root for all checks.

Exit status 1 means that there is a fault; warnings do not change the status.`

func (t command) doctor() *cobra.Command {
	var where Host
	c := &cobra.Command{
		Use: "doctor", Short: "Diagnose this host", Long: doctorLong, GroupID: tool.GroupHost, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return t.diagnose(Examine(c.Context(), where)) },
	}
	c.Flags().StringVar(&where.Controller, "gctld", "", "gctld's file [/etc/greylag/gctld.toml, if gctld is set up]")
	c.Flags().StringVar(&where.Node, "gnoded", "", "gnoded's file [/etc/greylag/gnoded.toml, if gnoded is set up]")
	c.Flags().StringVar(&where.Auth, "gauthd", "", "gauthd's file [/etc/greylag/gauthd.toml, if gauthd is set up]")
	return c
}

// diagnose prints the findings. Only a fault is a failure.
func (t command) diagnose(findings []Finding) error {
	faults, warnings := 0, 0
	for _, f := range findings {
		switch f.Level {
		case Fault:
			faults++
		case Warning:
			warnings++
		}
	}
	if err := t.tellFindings(findings, faults, warnings); err != nil {
		return err
	}
	if faults > 0 {
		return ui.Exit(ui.Failed)
	}
	return nil
}

func (t command) tellFindings(findings []Finding, faults, warnings int) error {
	if t.JSON {
		name, _ := os.Hostname()
		return t.WriteJSON(struct {
			Host     string    `json:"host"`
			Faults   int       `json:"faults"`
			Warnings int       `json:"warnings"`
			Findings []Finding `json:"findings"`
		}{name, faults, warnings, findings})
	}
	for _, f := range findings {
		if _, err := fmt.Fprintf(t.Stdout, "%-7s  %s: %s: %s\n", f.Level, f.Part, f.Check, ui.Printable(f.Found)); err != nil {
			return err
		}
		if f.Advice != "" {
			if _, err := fmt.Fprintf(t.Stdout, "%9s%s\n", "", ui.Printable(f.Advice)); err != nil {
				return err
			}
		}
	}
	if faults+warnings > 0 {
		t.Note("faults: %d, warnings: %d", faults, warnings)
	}
	return nil
}
