package jobscript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// MaxScript is the longest batch script, in bytes. A longer one is data that
// belongs into a file of its own.
const MaxScript = 4 << 20

// Script is a batch script that can be submitted.
type Script struct {
	Name string // for messages: the path as given, "standard input" or "--wrap"
	Text []byte
}

// Open reads and checks the script at path.
func Open(path string) (Script, error) {
	if !utf8.ValidString(path) {
		return Script{}, &Fault{Problem: fmt.Sprintf("the script's name %q is not UTF-8", path), Advice: "rename it"}
	}
	f, err := os.Open(path)
	if err != nil {
		return Script{}, openFault(path, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return Script{}, &Fault{Problem: fmt.Sprintf("%s is a directory, not a script", printable(path)), Advice: "name the batch script in it"}
	}
	return Read(path, f)
}

func openFault(path string, err error) error {
	switch {
	case path == "":
		return &Fault{Problem: "the name of the script is empty", Advice: "give a file in this directory, or its full path"}
	case errors.Is(err, fs.ErrNotExist):
		fault := &Fault{Problem: fmt.Sprintf("no script %s", printable(path)), Advice: "give a file in this directory, or its full path"}
		if strings.ContainsAny(path, " \t") {
			fault.Advice = "a command is submitted with --wrap '...'"
		}
		return fault
	case errors.Is(err, fs.ErrPermission):
		return &Fault{Problem: fmt.Sprintf("no permission to read %s", printable(path)), Advice: "check its owner and mode: ls -l " + printable(path)}
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return &Fault{Problem: fmt.Sprintf("read %s: %v", printable(path), err)}
}

// Read reads and checks a script. Its errors are *Fault. At most MaxScript bytes
// are kept.
func Read(name string, r io.Reader) (Script, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxScript+1))
	if err != nil {
		return Script{}, openFault(name, err)
	}
	s := Script{Name: name, Text: text}
	if fault := s.check(); fault != nil {
		return Script{}, fault
	}
	return s, nil
}

// Wrap makes a script of a shell command.
func Wrap(command string) (Script, error) {
	if strings.TrimSpace(command) == "" {
		return Script{}, &Fault{Option: "--wrap", Problem: "the command is empty", Advice: "write --wrap 'COMMAND'"}
	}
	if len(command) > MaxScript-64 {
		return Script{}, &Fault{Option: "--wrap", Problem: "the command is too long", Advice: "put it into a script"}
	}
	return Script{Name: wrapped, Text: []byte(wrapHead + command + "\n")}, nil
}

// JobName is the name a job has when its user gives none, as of sbatch: the
// script's file name.
func (s Script) JobName() string {
	switch s.Name {
	case wrapped:
		return "wrap"
	case StandardInput:
		return "gsubmit"
	}
	return filepath.Base(s.Name)
}

// StandardInput is the name of a script that came through a pipe.
const StandardInput = "standard input"

const (
	wrapped  = "--wrap"
	wrapHead = "#!/bin/sh\n# submitted with --wrap\n\n" // before the command
)

// Command returns the script's path, relative paths counting from dir, or the command of
// --wrap; "" for a script from standard input.
func (s Script) Command(dir string) string {
	switch {
	case s.Name == wrapped:
		return strings.TrimSuffix(strings.TrimPrefix(string(s.Text), wrapHead), "\n")
	case s.Name == StandardInput:
		return ""
	case filepath.IsAbs(s.Name):
		return filepath.Clean(s.Name)
	}
	return filepath.Join(dir, s.Name)
}

func (s Script) check() *Fault {
	at := printable(s.Name)
	switch {
	case len(s.Text) > MaxScript:
		return &Fault{Problem: fmt.Sprintf("%s is longer than %d MiB", at, MaxScript>>20), Advice: "a batch script is text; read large data from a separate file"}
	case len(bytes.TrimSpace(s.Text)) == 0:
		return &Fault{Problem: at + " is empty", Advice: "a batch script begins with a line such as #!/bin/bash"}
	}
	if i := bytes.IndexByte(s.Text, 0); i >= 0 {
		return &Fault{Problem: fmt.Sprintf("%s is a binary file: byte %d is NUL", at, i+1), Advice: fmt.Sprintf("start it from a script, or with --wrap ./%s", filepath.Base(at))}
	}
	if bytes.HasPrefix(s.Text, []byte("\ufeff#!")) {
		return &Fault{Problem: at + ":1: a byte order mark comes before #!", Advice: "remove it: sed -i '1s/^\\xef\\xbb\\xbf//' " + at}
	}
	if !bytes.HasPrefix(s.Text, []byte("#!")) {
		return &Fault{Problem: at + " does not begin with #!", Advice: "set the interpreter in the first line, such as #!/bin/bash"}
	}
	if i := bytes.Index(s.Text, []byte("\r\n")); i >= 0 {
		line := 1 + bytes.Count(s.Text[:i], []byte("\n"))
		return &Fault{Where: fmt.Sprintf("%s:%d", at, line), Problem: "the line ends as on Windows (CR LF)", Advice: `convert the script: sed -i 's/\r$//' ` + at}
	}
	first, _, _ := bytes.Cut(s.Text, []byte("\n"))
	if len(bytes.TrimSpace(first[2:])) == 0 {
		return &Fault{Where: at + ":1", Problem: "no interpreter after #!", Advice: "write #!/bin/bash, for example"}
	}
	return nil
}

// printable is a name that can be shown: as it is, or quoted when it holds
// characters that would garble a terminal.
func printable(name string) string {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unprintable) {
		return fmt.Sprintf("%q", name)
	}
	return name
}
