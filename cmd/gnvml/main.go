// Command gnvml talks to NVIDIA's library for the node daemon, which starts it:
// see package internal/gpu. It answers requests on its standard input until
// that ends. It is the only program that is not static.
package main

import (
	"fmt"
	"os"

	"github.com/greylag/greylag/internal/gpu/nvml"
	"github.com/greylag/greylag/internal/version"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		with := "with"
		if !nvml.Linked {
			with = "without"
		}
		fmt.Printf("gnvml %s, %s NVML\n", version.Version, with)
		return
	}
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "gnvml: error: takes no arguments")
		fmt.Fprintln(os.Stderr, "gnvml: hint: gnoded starts this program; it is of no use by hand")
		os.Exit(2)
	}
	if err := nvml.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gnvml: error:", err)
		os.Exit(1)
	}
}
