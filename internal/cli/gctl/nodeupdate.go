package gctl

import (
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/cli/ui"
)

// nodeUpdate refuses scontrol's syntax for changing a node, and names ours.
func nodeUpdate(words []string) error {
	nodes, state := "", ""
	for _, word := range words {
		switch name, value, _ := strings.Cut(word, "="); strings.ToLower(name) {
		case "nodename", "node":
			nodes = value
		case "state":
			state = strings.ToUpper(value)
		}
	}
	if nodes == "" {
		return nil
	}
	advice := fmt.Sprintf("gctl drain %s --reason TEXT, gctl resume %s", nodes, nodes)
	switch state {
	case "DRAIN", "DOWN", "FAIL":
		advice = fmt.Sprintf("gctl drain %s --reason TEXT", nodes)
	case "RESUME", "UNDRAIN", "IDLE":
		advice = "gctl resume " + nodes
	}
	return &ui.UsageError{Problem: "update changes jobs, not nodes", Advice: advice}
}
