package accounting

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPromises compares testdata/README.md with the scenarios and tests that it names: each of them
// exists, and each scenario is listed.
func TestPromises(t *testing.T) {
	table, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(string(table), -1) {
		where := m[1]
		folder, test, isTest := strings.Cut(where, " ")
		switch {
		case isTest && !hasTest(t, folder, test):
			t.Errorf("%s has no %s", folder, test)
		case isTest, !strings.Contains(filepath.Ext(where), ".txt"):
			continue
		}
		named[filepath.Base(where)] = true
		path := filepath.Join("..", "..", where)
		if filepath.Base(where) == where {
			path = filepath.Join("testdata", where)
		}
		if _, err := os.Stat(path); err != nil && !isTest {
			t.Error(err)
		}
	}
	files, _ := filepath.Glob("testdata/*.txt")
	if len(files) == 0 || len(named) == 0 {
		t.Fatalf("%d scenarios, %d are named", len(files), len(named))
	}
	for _, file := range files {
		if !named[filepath.Base(file)] {
			t.Errorf("%s stands for nothing in testdata/README.md", file)
		}
	}
}

// hasTest reports whether a folder of the repository has a test.
func hasTest(t *testing.T, folder, test string) bool {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), "\nfunc "+test+"(") {
			return true
		}
	}
	return false
}
