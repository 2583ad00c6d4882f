//go:build linux

// Command greylag-burst-local is a provider program whose instances are gnoded processes of this machine, for the demo and
// for tests: see package internal/burst/local.
package main

import (
	"os"

	"github.com/greylag/greylag/internal/burst/local"
)

func main() { os.Exit(local.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
