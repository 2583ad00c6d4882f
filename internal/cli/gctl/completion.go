package gctl

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
)

const completionLong = `Prints the shell completion script for the given programs, by default for gsubmit,
gqueue, gcancel, grun, gctl and gsim:

  bash   gctl completion bash > /etc/bash_completion.d/greylag
  zsh    source <(gctl completion zsh)
  fish   gctl completion fish | source

Add the lines for zsh and fish to ~/.zshrc and ~/.config/fish/config.fish.`

func (t commands) completion() *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish [PROGRAM...]", Short: "Print completions for a shell", Long: completionLong, GroupID: tool.GroupHost,
		Args: cobra.MinimumNArgs(1), ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(_ *cobra.Command, args []string) error {
			programs := completed()
			for _, program := range args[1:] {
				if !slices.Contains(programs, program) {
					return &ui.UsageError{Problem: fmt.Sprintf("no completions for %q", program), Advice: "choose from " + strings.Join(programs, ", ")}
				}
			}
			if len(args) > 1 {
				programs = args[1:]
			}
			for _, program := range programs {
				if err := shellText(t.Stdout, args[0], program); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// completed returns the programs that have completions.
func completed() []string { return []string{"gctl", "gsubmit", "gqueue", "gcancel", "grun", "gsim"} }

// shellText writes a program's completions. They ask the program itself for candidates, in cobra's
// protocol, which all support.
func shellText(w io.Writer, shell, program string) error {
	c := &cobra.Command{Use: program}
	switch shell {
	case "bash":
		return c.GenBashCompletionV2(w, true)
	case "zsh":
		return c.GenZshCompletion(w)
	case "fish":
		return c.GenFishCompletion(w, true)
	}
	return &ui.UsageError{Problem: fmt.Sprintf("unknown shell %q", shell), Advice: "write bash, zsh or fish"}
}
