package getopt

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func table() []Option {
	return []Option{
		{Long: "user", Short: 'u', Aliases: []string{"owner"}, Value: "NAME", Group: "Which", Help: "of these users"},
		{Long: "verbose", Short: 'v', Group: "Which", Help: "say more"},
		{Long: "nice", Short: 'n', Value: "N", Absent: "100", Group: "Other options", Help: "lower the priority, with a help text that is so long that it does not fit one line"},
		{Long: "hidden"},
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		words string
		order Order
		want  string
	}{
		{"", Anywhere, ""},
		{"a -v b", Anywhere, "-v= | a b"},
		{"a -v b", First, " | a -v b"},
		{"-v a -v", First, "-v= | a -v"},
		{"-vu me --owner=you --user they", Anywhere, "-v= -u=me --owner=you --user=they | "},
		{"-ume -u=me", Anywhere, "-u=me -u=me | "},
		{"-n -n5 --nice --nice=7 8", Anywhere, "-n=100 -n=5 --nice=100 --nice=7 | 8"},
		{"-v -- -v -", Anywhere, "-v= | -v -"},
		{"- -v", Anywhere, "-v= | -"},
		{"--user=", Anywhere, "--user= | "},
		{"--user", Anywhere, "option --user needs a value: write --user NAME"},
		{"-vu", Anywhere, "option -u needs a value: write -u NAME"},
		{"--verbose=1", Anywhere, `option --verbose takes no value, got "1": write --verbose alone`},
		{"--verb --own=me --us they", Anywhere, "--verb= --own=me --us=they | "},
		{"--n", Anywhere, "--n=100 | "},
		{"--ver=1", Anywhere, `option --ver takes no value, got "1": write --ver alone`},
		{"--=x", Anywhere, `unknown option "--": see --help for all options`},
		{"--usr x", Anywhere, `unknown option "--usr": did you mean --user?`},
		{"-mser=4", Anywhere, `unknown option "-m": did you mean --user?`},
		{"-x", Anywhere, `unknown option "-x": see --help for all options`},
		{"-\x00", Anywhere, `unknown option "-\x00": see --help for all options`},
		{"-vé", Anywhere, `unknown option "-é": see --help for all options`},
	} {
		found, operands, err := Parse(table(), strings.Fields(c.words), c.order)
		var got []string
		for _, f := range found {
			got = append(got, f.As+"="+f.Value)
		}
		text := strings.Trim(strings.Join(got, " ")+" | "+strings.Join(operands, " "), "")
		if len(found)+len(operands) == 0 {
			text = ""
		}
		var e *Error
		if errors.As(err, &e) {
			text = e.Error() + ": " + e.Hint()
		}
		if text != c.want {
			t.Errorf("%q: %q, want %q", c.words, text, c.want)
		}
	}
}

func TestHelpFits(t *testing.T) {
	help := Help(table())
	for _, line := range strings.Split(help, "\n") {
		if len(line) > helpWidth {
			t.Errorf("%q has %d columns", line, len(line))
		}
	}
	want := "\nWhich:\n  -u, --user NAME             of these users\n"
	if !strings.HasPrefix(help, want) || strings.Contains(help, "hidden") || !strings.Contains(help, "--nice[=N]") {
		t.Errorf("%s", help)
	}
}

func TestClosest(t *testing.T) {
	names := []string{"time", "nodes", "gpus-per-node", "partition"}
	for word, want := range map[string]string{
		"tiem": "time", "node": "nodes", "gpu-per-node": "gpus-per-node", "partion": "partition",
		"x": "", "": "", "completely-else": "", strings.Repeat("a", 1000): "",
	} {
		if got := Closest(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// FuzzParse: any words are either split, with nothing lost, or refused.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"-v\na", "--user\nx", "-\x00", "-n5\n--", "--=", "-=v"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words := strings.Split(text, "\n")
		found, operands, err := Parse(table(), words, Anywhere)
		if err != nil {
			return
		}
		for _, one := range found {
			if one.Option == nil || !strings.Contains(text, strings.TrimLeft(one.As, "-")) {
				t.Errorf("%q: found %s", text, fmt.Sprint(one))
			}
		}
		if len(operands) > len(words) {
			t.Errorf("%q: %d operands", text, len(operands))
		}
	})
}

func TestPrefixOfSeveralOptionsIsRefused(t *testing.T) {
	_, _, err := Parse([]Option{{Long: "gpus", Value: "N"}, {Long: "gpu-bind", Value: "HOW"}}, []string{"--gpu=4"}, Anywhere)
	var e *Error
	if !errors.As(err, &e) || e.Problem != "option --gpu is ambiguous: --gpus, --gpu-bind" {
		t.Errorf("got %v", err)
	}
}
