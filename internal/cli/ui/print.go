package ui

import (
	"encoding/json"
	"fmt"

	"github.com/greylag/greylag/internal/version"
)

// WriteJSON prints one value, indented.
func (p *Process) WriteJSON(v any) error {
	e := json.NewEncoder(p.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// WriteJSONLine prints one value on a line.
func (p *Process) WriteJSONLine(v any) error {
	e := json.NewEncoder(p.Stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// PrintVersion prints the program and its version.
func (p *Process) PrintVersion() error {
	_, err := fmt.Fprintf(p.Stdout, "%s %s\n", p.Program, version.Version)
	return err
}
