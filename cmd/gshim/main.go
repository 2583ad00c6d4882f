//go:build linux

// Command gshim is what containerd executes for each task of a node: see package
// internal/shim. gnoded configures containerd to use it; users never call it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/greylag/greylag/internal/shim"
)

func main() {
	answer, err := run()
	if err == nil {
		_, err = os.Stdout.Write(answer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gshim: error:", err)
		os.Exit(1)
	}
}

func run() ([]byte, error) {
	call, err := shim.ParseCall(os.Args[1:])
	if err != nil {
		return nil, err
	}
	bundle, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	switch call.Action {
	case "start":
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		address, err := call.Start(filepath.Join(filepath.Dir(self), shim.Daemon), bundle)
		return []byte(address), err
	case "delete":
		return call.Delete(bundle)
	}
	return nil, fmt.Errorf("%w: %q is neither start nor delete; gnoded starts this program through containerd", shim.ErrUsage, call.Action)
}
