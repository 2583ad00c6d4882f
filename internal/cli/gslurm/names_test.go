package gslurm

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPackageHasAllNames compares the programs with the files of the package.
func TestPackageHasAllNames(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/common/files/slurm")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"gslurm"}
	for _, p := range Programs() {
		want = append(want, p.Name)
	}
	slices.Sort(want)
	var got []string
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "/usr/bin/"); ok {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the package has %v, the programs are %v", got, want)
	}
}
