package tool

import (
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/greylag/greylag/internal/cli/ui"
)

// MaxText is the largest size of a file of replicated settings, in bytes: controllers accept that
// much of accounts, and less of a policy.
const MaxText = 14 << 20

// PrintChange prints what a file changed, or would change, and its warnings.
func (t *Tool) PrintChange(diff string, version uint64, dry bool, warnings ...string) error {
	if t.JSON {
		return t.WriteJSON(struct {
			Version  uint64   `json:"version"`
			Diff     string   `json:"diff"`
			DryRun   bool     `json:"dry_run"`
			Warnings []string `json:"warnings,omitempty"`
		}{version, diff, dry, warnings})
	}
	for _, w := range warnings {
		t.Warn(w)
	}
	if _, err := io.WriteString(t.Stdout, diff); err != nil {
		return err
	}
	switch {
	case diff == "":
		t.Note("nothing changes")
	case dry:
		t.Note("dry run: nothing changed")
	default:
		t.Note("applied: version %d", version)
	}
	return nil
}

// FileLabel returns a file's name in messages.
func FileLabel(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// ReadText reads a file of replicated settings, or standard input for -.
func (t *Tool) ReadText(path string) (string, error) {
	in := t.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", ui.Unread(err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, MaxText+1))
	if err != nil {
		return "", ui.Unread(err)
	}
	if len(text) > MaxText {
		return "", &ui.UsageError{Problem: fmt.Sprintf("%s is longer than %d MiB", path, MaxText>>20), Advice: "check that it is the right file"}
	}
	if !utf8.Valid(text) {
		return "", &ui.UsageError{Problem: path + " is not UTF-8", Advice: "convert it: iconv -f LATIN1 -t UTF-8 " + path}
	}
	return string(text), nil
}
