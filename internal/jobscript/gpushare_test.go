package jobscript

import (
	"strings"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestGPUShare: the option says which part of a GPU a job requests; Slurm's counts do not.
func TestGPUShare(t *testing.T) {
	for word, want := range map[string]cluster.GPUShare{"2": {Jobs: 2}, "8": {Jobs: 8}, "4:mps": {Jobs: 4, MPS: true}} {
		if got, err := parseGPUShare(word); got != want || err != nil {
			t.Errorf("%s: %+v, %v", word, got, err)
		}
	}
	for _, word := range []string{"", "1", "3", "16", "0.5", "4:", "4:time", "mps:4"} {
		if got, err := parseGPUShare(word); err == nil {
			t.Errorf("%s: %+v", word, got)
		}
	}
	for _, word := range []string{"shard:2", "mps:50", "gpu:1,gres/shard:2"} {
		if g, err := parseGRES(word); err == nil || !strings.Contains(err.Error(), "does not say which part of a GPU") {
			t.Errorf("%s: %+v, %v", word, g, err)
		}
	}
}
