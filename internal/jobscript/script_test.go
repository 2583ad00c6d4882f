package jobscript

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestScriptsThatCannotRun(t *testing.T) {
	for _, c := range []struct{ name, text, problem, advice string }{
		{"job.sh", "", "job.sh is empty", "begins with a line"},
		{"job.sh", "\n \n", "job.sh is empty", "begins with a line"},
		{"job.sh", "echo hello\n", "job.sh does not begin with #!", "#!/bin/bash"},
		{"job.sh", "\ufeff#!/bin/sh\n", "job.sh:1: a byte order mark comes before #!", `sed -i '1s/^\xef\xbb\xbf//' job.sh`},
		{"job.sh", "#!\ntrue\n", "job.sh:1: no interpreter after #!", "#!/bin/bash"},
		{"job.sh", "#!/bin/sh\r\ntrue\r\n", "job.sh:1: the line ends as on Windows (CR LF)", `sed -i 's/\r$//' job.sh`},
		{"a/prog", "\x7fELF\x02\x01\x01\x00", "a/prog is a binary file: byte 8 is NUL", "--wrap ./prog"},
		{"job.sh", "#!/bin/sh\n\x00", "job.sh is a binary file: byte 11 is NUL", "--wrap"},
		{"job.sh", "#!/bin/sh\n" + strings.Repeat("#", 10<<20), "job.sh is longer than 4 MiB", "a separate file"},
		{"a\x1b[31m", "x", `"a\x1b[31m" does not begin with #!`, "#!/bin/bash"},
	} {
		_, err := Read(c.name, strings.NewReader(c.text))
		var fault *Fault
		if !errors.As(err, &fault) || fault.Error() != c.problem || !strings.Contains(fault.Hint(), c.advice) {
			t.Errorf("%q: %v, want %q with a hint about %q", c.text[:min(20, len(c.text))], err, c.problem, c.advice)
		}
	}
}

func TestOpenTellsWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	for path, problem := range map[string]string{
		"":                                 "the name of the script is empty",
		filepath.Join(dir, "absent.sh"):    "no script " + dir + "/absent.sh",
		dir:                                dir + " is a directory, not a script",
		filepath.Join(dir, "caf\xe9.sh"):   `is not UTF-8`,
		filepath.Join(dir, "python a b.c"): "no script",
	} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("open %q: %v, want %q", path, err, problem)
		}
	}
	path := filepath.Join(dir, "job.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path)
	if err != nil || s.JobName() != "job.sh" || !bytes.Equal(s.Text, []byte("#!/bin/sh\n")) {
		t.Errorf("open: %+v, %v", s, err)
	}
}

func TestWrappedCommandHasNoDirectives(t *testing.T) {
	s, err := Wrap("#GSUB --time=x\nhostname")
	if err != nil || len(s.Directives()) != 0 || s.JobName() != "wrap" || !strings.HasSuffix(string(s.Text), "hostname\n") {
		t.Errorf("%q, %v", s.Text, err)
	}
	if _, err := Wrap("  "); err == nil {
		t.Error("an empty command was taken")
	}
}

func TestEnvironment(t *testing.T) {
	environ := []string{"PATH=/bin", "HOME=/root", "GREYLAG_JOB_ID=7", "SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0", "XDG_RUNTIME_DIR=/run/user/0", "SHLVL=2", "BASH_FUNC_x%%=() { :\n}", "odd"}
	for _, c := range []struct {
		export Export
		want   string
	}{
		{Export{}, "BASH_FUNC_x%%=() { :\n}|HOME=/root|PATH=/bin"},
		{Export{None: true}, ""},
		{Export{None: true, Names: []string{"HOME", "CUDA_VISIBLE_DEVICES", "ABSENT"}, Set: []string{"A=1", "A=2"}}, "A=2|CUDA_VISIBLE_DEVICES=0|HOME=/root"},
		{Export{Set: []string{"PATH=/usr/bin"}}, "BASH_FUNC_x%%=() { :\n}|HOME=/root|PATH=/usr/bin"},
		{Export{Image: true}, "BASH_FUNC_x%%=() { :\n}|HOME=/root"},
		{Export{Image: true, Names: []string{"PATH"}}, "BASH_FUNC_x%%=() { :\n}|HOME=/root|PATH=/bin"},
		{Export{Image: true, Set: []string{"PATH=/opt"}}, "BASH_FUNC_x%%=() { :\n}|HOME=/root|PATH=/opt"},
	} {
		if got := strings.Join(c.export.Environment(environ), "|"); got != c.want {
			t.Errorf("%+v: %q, want %q", c.export, got, c.want)
		}
	}
	outside := Export{}.Environment([]string{"CUDA_VISIBLE_DEVICES=1"})
	if len(outside) != 1 {
		t.Error("outside a job the user's own CUDA_VISIBLE_DEVICES is theirs")
	}
}
