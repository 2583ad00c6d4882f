//go:build linux

// Command gshimd supervises one task: see package internal/shim/service. gshim starts it.
package main

import (
	"fmt"
	"os"

	"github.com/greylag/greylag/internal/shim"
	"github.com/greylag/greylag/internal/shim/service"
)

func main() {
	call, err := shim.ParseCall(os.Args[1:])
	if err == nil {
		err = service.Run(call)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gshimd: error:", err)
		fmt.Fprintln(os.Stderr, "gshimd: hint: gshim starts this program; it is of no use by hand")
		os.Exit(1)
	}
}
