// Command gsubmit submits batch scripts. Everything but plain submissions is done by
// gctl, under this name. Under the name sbatch it is Slurm's command, and gslurm does the rest.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/greylag/greylag/internal/cli/express"
)

func main() {
	command := express.Command{
		Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now(),
		Slurm: filepath.Base(os.Args[0]) == "sbatch",
	}
	request, done := command.Run()
	if done {
		return
	}
	err := command.Whole(request)
	fmt.Fprintf(os.Stderr, "gsubmit: error: %v\ngsubmit: hint: install it in the same folder\n", err)
	os.Exit(1)
}
