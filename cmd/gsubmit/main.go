// Command gsubmit submits batch scripts. Everything but plain submissions is done by
// gctl, under this name.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/greylag/greylag/internal/cli/express"
)

func main() {
	command := express.Command{Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now()}
	request, done := command.Run()
	if done {
		return
	}
	err := express.Whole(request)
	fmt.Fprintf(os.Stderr, "gsubmit: error: %v\ngsubmit: hint: install gctl in the same folder\n", err)
	os.Exit(1)
}
