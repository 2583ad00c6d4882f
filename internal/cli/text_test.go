package cli

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
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

// TestPartitionText: all while a job waits, the one that it runs in after.
func TestPartitionText(t *testing.T) {
	for state, want := range map[string]string{"PENDING": "short,main", "RUNNING": "short", "COMPLETED": "short"} {
		r := &row{job: &greylagv1.Job{State: state, Partition: "short", Others: []string{"main"}}}
		if got := string(fieldOf(fields(), 'P').write(nil, view{}, r)); got != want {
			t.Errorf("%s: %s, want %s", state, got, want)
		}
	}
}

func TestSpanAndCut(t *testing.T) {
	for _, c := range []struct {
		text    string
		span    int
		columns int
		cut     string
	}{
		{"abc", 3, 2, "ab"}, {"日本語", 6, 5, "日本"}, {"é", 1, 1, "é"}, {"e\u0301x", 2, 1, "e\u0301"}, {"", 0, 3, ""}, {"日", 2, 1, ""},
	} {
		if got := span([]byte(c.text)); got != c.span {
			t.Errorf("%q takes %d columns, want %d", c.text, got, c.span)
		}
		if got := string(cut([]byte(c.text), c.columns)); got != c.cut {
			t.Errorf("%q cut to %d is %q, want %q", c.text, c.columns, got, c.cut)
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

// FuzzRefs: ids are read or refused, never more than a bound of them.
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

// FuzzTable: whatever a job's name and a format hold, no line but the newline's own
// has a control character, and the table that fits does.
func FuzzTable(f *testing.F) {
	f.Add("a\x1b[2J", "%.10i %j", 80)
	f.Add("日本語", "%5j|%R", 40)
	f.Fuzz(func(t *testing.T, name, format string, width int) {
		job := &greylagv1.Job{Id: 1, Ref: "1", Name: name, User: name, Partition: name, State: "PENDING", Reason: name}
		rows := fold([]*greylagv1.Job{job}, false)
		width = min(max(width, leastWidth), mostWidth)
		line := strings.TrimSuffix(string(writeRow(nil, fit("iPjutMDR", view{}, rows, width, true), view{}, &rows[0])), "\n")
		if strings.ContainsFunc(line, unicode.IsControl) || !utf8.ValidString(line) || width >= 60 && span([]byte(line)) > width {
			t.Errorf("%q in %d columns: %q", name, width, line)
		}
		columns, err := parseFormat(format)
		if err != nil {
			return
		}
		line = strings.TrimSuffix(string(writeRow(nil, columns, view{}, &rows[0])), "\n")
		if strings.ContainsFunc(line, unicode.IsControl) {
			t.Errorf("%q by %q: %q", name, format, line)
		}
	})
}

func TestSortIsByAllKeys(t *testing.T) {
	keys, err := parseSort("P,-t,u")
	if err != nil {
		t.Fatal(err)
	}
	rows := fold([]*greylagv1.Job{
		{Id: 1, Ref: "1", Partition: "b", State: "PENDING"}, {Id: 2, Ref: "2", Partition: "a", State: "PENDING", User: "y"},
		{Id: 3, Ref: "3", Partition: "a", State: "PENDING", User: "x"}, {Id: 4, Ref: "4", Partition: "a", State: "RUNNING"}, {Id: 5, Ref: "5", Partition: "a", State: "NEWER"},
		{Id: 6, Ref: "6", Partition: "a", Others: []string{"c"}, State: "PENDING"}, {Id: 7, Ref: "7", Partition: "a", Others: []string{"b"}, State: "PENDING"},
	}, true)
	sortRows(rows, keys)
	var got []uint64
	for _, r := range rows {
		got = append(got, r.job.Id)
	}
	if want := []uint64{4, 3, 2, 5, 7, 6, 1}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}
