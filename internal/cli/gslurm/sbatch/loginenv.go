package sbatch

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"os/user"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/cli/ui"
)

// loginPatience bounds how long a login shell may take.
const loginPatience = 15 * time.Second

// marker precedes the variables: files that a login shell reads may print text.
const marker = "GREYLAG-ENVIRONMENT"

// loginEnvironment returns the variables of the user's login shell.
func (c command) loginEnvironment(ctx context.Context) ([]string, error) {
	u, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("--get-user-env: %w", err)
	}
	shell := c.Variable("SHELL")
	if shell == "" {
		shell = "/bin/sh"
	}
	ctx, stop := context.WithTimeout(ctx, loginPatience)
	defer stop()
	command := exec.CommandContext(ctx, shell, "-l", "-c", "printf %s "+marker+"; env -0")
	command.Env = []string{"HOME=" + u.HomeDir, "USER=" + u.Username, "LOGNAME=" + u.Username, "SHELL=" + shell, "TERM=dumb", "PATH=/usr/local/bin:/usr/bin:/bin"}
	command.WaitDelay = time.Second
	out, err := command.Output()
	_, variables, marked := bytes.Cut(out, []byte(marker))
	if err != nil || !marked {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("--get-user-env: the login shell %s failed: %v", shell, err), Advice: "begin the script with #!/bin/bash -l instead"}
	}
	return strings.Split(strings.TrimRight(string(variables), "\x00"), "\x00"), nil
}
