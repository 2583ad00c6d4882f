package schedule

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// TestScenarios reads testdata/*.txt: cases of a picture, a line of dashes and the decision, with
// an empty line between cases.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cases := strings.Split(strings.TrimSpace(string(data)), "\n\n")
		for i, text := range cases {
			picture, want, _ := strings.Cut(text, "\n----")
			want = strings.TrimSpace(want)
			got := write(Decide(draw(t, picture)))
			if got != want && !*update {
				t.Errorf("%s:\n%s\n---- got\n%s\n---- want\n%s", file, picture, got, want)
			}
			cases[i] = strings.TrimRight(picture+"\n----\n"+got, "\n")
		}
		if *update {
			if err := os.WriteFile(file, []byte(strings.Join(cases, "\n\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
