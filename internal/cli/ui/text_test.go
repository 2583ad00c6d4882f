package ui

import (
	"strings"
	"testing"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "日本 é": "日本 é", "a\x1b[2Jb": `a\x1b[2Jb`, "a\nb\tc\x7f": `a\x0ab\x09c\x7f`,
		"a\u202eb": `a\u202eb`, "a\xffb": `a\xffb`, "\ufffd": "\ufffd", "\u200b": `\u200b`, "\u0085": `\u0085`, "": "",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestSpanAndCut(t *testing.T) {
	for _, c := range []struct {
		text       string
		Columns    int
		columns    int
		CutColumns string
	}{
		{"abc", 3, 2, "ab"}, {"日本語", 6, 5, "日本"}, {"é", 1, 1, "é"}, {"e\u0301x", 2, 1, "e\u0301"}, {"", 0, 3, ""}, {"日", 2, 1, ""},
	} {
		if got := Columns([]byte(c.text)); got != c.Columns {
			t.Errorf("%q takes %d columns, want %d", c.text, got, c.Columns)
		}
		if got := string(CutColumns([]byte(c.text), c.columns)); got != c.CutColumns {
			t.Errorf("%q cut to %d is %q, want %q", c.text, c.columns, got, c.CutColumns)
		}
	}
}

func TestRefs(t *testing.T) {
	for words, want := range map[string]string{
		"1": "1", "1,2_3": "1 2_3", "1 2": "1 2", "1_[2-4,9]": "1_2 1_3 1_4 1_9", "1_[0-8:4]": "1_0 1_4 1_8",
		"1_[2-3%2],7": "1_2 1_3 7", "1_[5]": "1_5",
		"": "", ",": "!", "x": "!", "0": "!", "1_": "!", "1_[": "!", "1_[]": "!", "1_[3-2]": "!", "1_[1-2": "!", "1]": "!", "1_[0-100000]": "!",
		"1_[0-4294967296]": "!", "1_[1-2:0]": "!", "-1": "!", "1_[[1]]": "!", "1__2": "!",
	} {
		refs, err := Refs(strings.Fields(words))
		got := strings.Join(refs, " ")
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("%q: %q (%v), want %q", words, got, err, want)
		}
	}
}

func TestCount(t *testing.T) {
	if got := Count(1, "entry") + Count(0, "entry") + Count(2, "node") + Count(1, "node") + Count(2, "day"); got != "1 entry0 entries2 nodes1 node2 days" {
		t.Error(got)
	}
}

// FuzzRefs checks that IDs are read or refused, never more than the bound.
func FuzzRefs(f *testing.F) {
	for _, seed := range []string{"1,2_3", "1_[2-4,9%2]", "1_[0-99999]", "9_[1-2147483647:2]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if refs, err := Refs([]string{word}); err == nil && (len(refs) == 0 || len(refs) > mostRefs) {
			t.Errorf("%q stands for %d jobs", word, len(refs))
		}
	})
}
