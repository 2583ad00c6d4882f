package gctl

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
)

const completionLong = `Prints the shell completion script for gsubmit, gqueue, gcancel and gctl:

  bash   gctl completion bash > /etc/bash_completion.d/greylag
  zsh    source <(gctl completion zsh)
  fish   gctl completion fish | source

Add the lines for zsh and fish to ~/.zshrc and ~/.config/fish/config.fish.`

func (t commands) completion() *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print completions for a shell", Long: completionLong, GroupID: tool.GroupHost,
		Args: cobra.ExactArgs(1), ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(_ *cobra.Command, args []string) error {
			for _, program := range []string{"gctl", "gsubmit", "gqueue", "gcancel"} {
				if err := shellText(t.Stdout, args[0], program); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// shellText writes a program's completions. They ask the program itself for candidates, in cobra's
// protocol, which all four support.
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
