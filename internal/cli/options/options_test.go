package options

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestProblem(t *testing.T) {
	for _, c := range []struct {
		arg, want string
	}{
		{"--bogus", `unknown option "--bogus"`},
		{"-xz", `unknown option "-x"`},
		{"--file", "option --file needs a value"},
		{"-f", "option -f needs a value"},
		{"-qf", "option -f needs a value"},
		{"--expect=-1", `--expect: "-1" is not a whole number from 0 on, or it is too large`},
		{"--tail=99999999999999999999", `--tail: "99999999999999999999" is not a whole number, or it is too large`},
		{"--tail=", `--tail: "" is not a whole number, or it is too large`},
		{"--quiet=maybe", `--quiet: "maybe" is not true or false`},
		{"--wait=5", `--wait: "5" is not a time such as 90s, 5m or 1h30m`},
		{"---x", `unexpected argument "---x"`},
	} {
		f := pflag.NewFlagSet("gctl", pflag.ContinueOnError)
		f.StringP("file", "f", "", "")
		f.BoolP("quiet", "q", false, "")
		f.Uint64("expect", 0, "")
		f.Int64("tail", 0, "")
		f.Duration("wait", time.Second, "")
		err := f.Parse([]string{c.arg})
		if err == nil {
			t.Errorf("%s is taken", c.arg)
		} else if got := Problem(err); got != c.want {
			t.Errorf("%s: %s, want %s", c.arg, got, c.want)
		}
	}
}
