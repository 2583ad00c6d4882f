package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEveryFieldOfJSONIsDocumented holds the contract of --json against its page.
func TestEveryFieldOfJSONIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/man/json.md")
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]bool)
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllSubmatch(page, -1) {
		told[string(m[1])] = true
	}
	files, err := filepath.Glob("*.go")
	more, e := filepath.Glob("control/*.go")
	if err != nil || e != nil {
		t.Fatal(err, e)
	}
	count := 0
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`json:\"([a-z_]+)[,\"]").FindAllSubmatch(text, -1) {
			count++
			if name := string(m[1]); !told[name] && name != "jobs" && name != "outcomes" && name != "partitions" {
				t.Errorf("%s: docs/man/json.md does not name the field %q", file, name)
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d fields were found", count)
	}
}
