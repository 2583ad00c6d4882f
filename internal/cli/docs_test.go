package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/report"
	"github.com/greylag/greylag/pkg/cluster"
)

// reportColumns returns the columns of all reports.
func reportColumns() (names []string) {
	tables := []report.Table{report.Credits(nil), report.Cluster(nil), report.AlertTable(nil)}
	for _, name := range report.Reports() {
		t, _ := report.Make(name, nil)
		tables = append(tables, t)
	}
	for _, t := range tables {
		for _, c := range t.Columns {
			names = append(names, c.Name)
		}
	}
	return names
}

// TestEveryFieldOfJSONIsDocumented compares the contract of --json with its page.
func TestEveryFieldOfJSONIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/man/json.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, m := range regexp.MustCompile("`([a-z_0-9]+)`").FindAllSubmatch(page, -1) {
		documented[string(m[1])] = true
	}
	var files []string
	for _, some := range []string{"ui/*.go", "gsubmit/*.go", "gqueue/*.go", "gcancel/*.go", "gctl/*.go", "gctl/*/*.go", "acct/*.go", "../report/*.go"} {
		more, err := filepath.Glob(some)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	count := 0
	for _, name := range reportColumns() {
		if !documented[name] {
			t.Errorf("docs/man/json.md does not name the column %q of a report", name)
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`json:\"([a-z_0-9]+)[,\"]").FindAllSubmatch(text, -1) {
			count++
			if name := string(m[1]); !documented[name] && name != "jobs" && name != "outcomes" && name != "partitions" {
				t.Errorf("%s: docs/man/json.md does not name the field %q", file, name)
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d fields were found", count)
	}
}

// TestEveryReasonIsDocumented checks that the table of reasons has every reason of jobs. Limits are
// one row.
func TestEveryReasonIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/user.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| reason | meaning |")
	table, _, _ = strings.Cut(table, "| state | meaning |")
	limit := regexp.MustCompile("^(Assoc|QOS|Max)(Grp|Max|Min|GRES|Jobs)")
	for r := cluster.ReasonNone + 1; !strings.HasPrefix(r.String(), "Reason("); r++ {
		never := r == cluster.ReasonAccount || r == cluster.ReasonSystemFailure // no job gets these
		if !never && !limit.MatchString(r.String()) && !regexp.MustCompile(`\b`+r.String()+`\b`).MatchString(table) {
			t.Errorf("docs/user.md does not say what %s means", r)
		}
	}
}
