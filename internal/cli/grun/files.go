package grun

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/step"
)

// opener opens the files that grun reads and writes itself.
type opener struct {
	dir     string
	letters map[byte]string
	tasks   int
	keep    bool
	opened  []*os.File
	outputs map[string]*os.File
}

func (o *opener) close() error {
	var errs []error
	for _, f := range o.opened {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// parse reads all, none or a rank; otherwise the stream is a file.
func (o *opener) parse(option, where string) (s step.Stream, isFile bool, err error) {
	switch where {
	case "", "all":
		return s, false, nil
	case "none":
		return step.Stream{Mode: step.StreamNone}, false, nil
	}
	rank, err := strconv.ParseUint(where, 10, 31)
	switch {
	case err != nil && step.PerTask(where):
		_, err := step.ExpandPath(where, nil)
		return step.Stream{Mode: step.StreamFile, Path: where}, false, asUsage(option, err)
	case err != nil:
		return s, true, nil
	case int(rank) >= o.tasks:
		return s, false, &ui.UsageError{Problem: option + "=" + where + ": the step has no such task", Advice: "its tasks are 0 to " + strconv.Itoa(o.tasks-1)}
	}
	return step.Stream{Mode: step.StreamRank, Rank: int(rank)}, false, nil
}

func asUsage(option string, err error) error {
	if err == nil {
		return nil
	}
	return &ui.UsageError{Problem: option + ": " + err.Error(), Advice: "see --help"}
}

// path returns the name of a file that grun opens.
func (o *opener) path(option, pattern string) (string, error) {
	path, err := step.ExpandPath(pattern, o.letters)
	if err != nil {
		return "", asUsage(option, err)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(o.dir, path)
	}
	return path, nil
}

// output sets where the output of the tasks goes.
func (o *opener) output(option, where string, to *io.Writer) (step.Stream, error) {
	s, isFile, err := o.parse(option, where)
	if err != nil || !isFile {
		return s, err
	}
	path, err := o.path(option, where)
	if err != nil {
		return s, err
	}
	f := o.outputs[path]
	if f == nil {
		flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
		if !o.keep {
			flags |= os.O_TRUNC
		}
		if f, err = os.OpenFile(path, flags, 0o666); err != nil {
			return s, &ui.UsageError{Problem: option + ": cannot open the file: " + err.Error(), Advice: "check that its directory exists and may be written to"}
		}
		o.opened, o.outputs = append(o.opened, f), map[string]*os.File{path: f}
	}
	*to = f
	return s, nil
}

// input sets where the input of the tasks comes from.
func (o *opener) input(where string, from *io.Reader) (step.Stream, error) {
	s, isFile, err := o.parse("--input", where)
	if err != nil || !isFile {
		return s, err
	}
	path, err := o.path("--input", where)
	if err != nil {
		return s, err
	}
	f, err := os.Open(path)
	if err != nil {
		return s, ui.Unread(err)
	}
	o.opened, *from = append(o.opened, f), f
	return s, nil
}
