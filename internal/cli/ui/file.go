package ui

import (
	"io"
	"os"
)

// WriteFile creates or truncates a file, and writes it.
func WriteFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return &UsageError{Problem: err.Error()}
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
