package cluster

import (
	"slices"
	"testing"
)

func TestFileNamesOfABatchScript(t *testing.T) {
	w := PathValues{Job: 42, Array: 40, Index: 12, Name: "train", User: "ann", Restarts: 1, Node: "n1"}
	for pattern, want := range map[string]string{
		"a-%J.log": "a-42.log", "%4J": "0042", "%A_%a_%b": "40_12_2", "%x-%s": "train-batch", "%%j": "%j", "%q-%j": "%q-42",
	} {
		if got := w.Expand(pattern); got != want {
			t.Errorf("%q: %q, want %q", pattern, got, want)
		}
	}
}

func TestUnknownWordsOfAFileName(t *testing.T) {
	for pattern, want := range map[string][]string{
		"%j-%J-%A-%a-%b-%x-%u-%N-%n-%t-%s-%r-%%.out": nil,
		"%q%3Z%q":  {"%q", "%Z"},
		"%é 100%":  {"%é"},
		"done%5":   nil,
		"%%q %%%w": {"%w"},
	} {
		if got := UnknownWords(pattern); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", pattern, got, want)
		}
	}
}
