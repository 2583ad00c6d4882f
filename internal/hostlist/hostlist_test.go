package hostlist

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

// cases reads lines of the form "left -> right".
func cases(t *testing.T, file string) [][2]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all [][2]string
	for line := range strings.Lines(string(text)) {
		if left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " -> "); ok && !strings.HasPrefix(line, "#") {
			all = append(all, [2]string{left, right})
		}
	}
	return all
}

func TestExpand(t *testing.T) {
	for _, c := range cases(t, "testdata/expand.txt") {
		names, err := Expand(c[0])
		if want, refused := strings.CutPrefix(c[1], "! "); refused {
			if !errors.Is(err, ErrBadList) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", c[0], err, want)
			}
			continue
		}
		if got := strings.Join(names, " "); err != nil || got != c[1] {
			t.Errorf("%q: %q, %v, want %q", c[0], got, err, c[1])
		}
	}
}

func TestCompress(t *testing.T) {
	for _, c := range cases(t, "testdata/compress.txt") {
		if got := Compress(strings.Fields(c[0])); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

func TestExpandIsBounded(t *testing.T) {
	names, err := Expand("n[1-100000]")
	if err != nil || len(names) != Most {
		t.Errorf("%d names, %v", len(names), err)
	}
	for _, expr := range []string{
		strings.Repeat("a,", Most) + "a",
		strings.Repeat("x", 10_000) + "[1-1000]",
		strings.Repeat("[1-10]", 1000),
		strings.Repeat("a", maxText+1),
	} {
		if names, err := Expand(expr); !errors.Is(err, ErrBadList) {
			t.Errorf("%.20s...: %d names, %v", expr, len(names), err)
		}
	}
}

// FuzzRoundTrip checks that folded names expand to the same set.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"gpu[001-128],login1", "r[1-2]n[01-04]", "a1,a01,a001", "[0-9],00", "n[098-101,5]x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		names, err := Expand(expr)
		if err != nil || len(names) > 2000 {
			return
		}
		short := Compress(names)
		back, err := Expand(short)
		slices.Sort(names)
		names = slices.Compact(names)
		slices.Sort(back)
		if err != nil || !slices.Equal(names, back) {
			t.Errorf("%q folds to %q, which is %q, %v, want %q", expr, short, back, err, names)
		}
	})
}

func BenchmarkCompress10000(b *testing.B) {
	names, err := Expand("gpu[00001-10000]")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if Compress(names) != "gpu[00001-10000]" {
			b.Fatal("not folded")
		}
	}
}
