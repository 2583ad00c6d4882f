// Package scenario finds and reads the scenario files of tests, which
// github.com/cockroachdb/datadriven runs: directives, each with the answer below
// "----". `go test ./PACKAGE -rewrite` writes the present answers into the files.
package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// Rewrite reports whether tests write what they got into the files that they compare with.
func Rewrite() bool { return flag.Lookup("rewrite").Value.String() == "true" }

// Files runs the files that match the pattern, each in a subtest with the file's name. The
// function start makes what answers the directives of one file.
func Files(t *testing.T, pattern string, start func(t *testing.T) func(t *testing.T, d *datadriven.TestData) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
			datadriven.RunTest(t, file, start(t))
		})
	}
}

// Cases runs the directives of the files that match the pattern, each on its own: answer gets its
// lines.
func Cases(t *testing.T, pattern string, answer func(t *testing.T, text string) string) {
	t.Helper()
	Files(t, pattern, func(*testing.T) func(*testing.T, *datadriven.TestData) string {
		return func(t *testing.T, d *datadriven.TestData) string {
			return answer(t, strings.Join(Lines(d), "\n")+"\n")
		}
	})
}

// Lines returns the first line of a directive and the lines of its input, without comments.
func Lines(d *datadriven.TestData) []string {
	first := d.Cmd
	for _, arg := range d.CmdArgs {
		first += " " + arg.Key
		if len(arg.Vals) > 0 {
			first += "=" + strings.Join(arg.Vals, ",")
		}
	}
	lines := []string{first}
	for line := range strings.Lines(d.Input) {
		if line = strings.TrimRight(line, "\n"); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// Golden compares text with a file, or writes the file.
func Golden(t *testing.T, file, got string) {
	t.Helper()
	if Rewrite() {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; -rewrite writes it again. Got:\n%s", file, got)
	}
}
