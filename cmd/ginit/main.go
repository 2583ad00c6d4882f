// Command ginit is the first process of a task: see package internal/ginit.
// It is started by the node daemon's runtime with the task's folder as its only
// argument, never by a user.
package main

import (
	"fmt"
	"os"

	"github.com/greylag/greylag/internal/ginit"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "ginit: error: want the folder of a task")
		fmt.Fprintln(os.Stderr, "ginit: hint: gnoded starts this program; it is of no use by hand")
		os.Exit(ginit.ExitOrder)
	}
	os.Exit(ginit.Run(os.Args[1]))
}
