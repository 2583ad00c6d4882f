package daemonmain

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/greylag/greylag/internal/hint"
)

func TestStatusAndWords(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		load   error
		serve  error
		status int
		says   string
	}{
		"good":           {status: stopped},
		"its file":       {args: []string{"--config", "x.toml"}, status: stopped},
		"help":           {args: []string{"--help"}, status: stopped, says: "usage: testd [--config FILE]\n\nTests.\nExit status: 0 stopped by a signal, 1 failed, 2 wrong usage or configuration.\n"},
		"a word":         {args: []string{"start"}, status: misused, says: "usage: testd [--config FILE]\n\nTests.\nExit status: 0 stopped by a signal, 1 failed, 2 wrong usage or configuration.\n"},
		"a wrong file":   {load: errors.New("x.toml:1: wrong"), status: misused, says: "testd: error: x.toml:1: wrong\n"},
		"does not serve": {serve: hint.New(errors.New("no key"), "fix it"), status: failed, says: "testd: error: no key\ntestd: hint: fix it\n"},
	} {
		var stderr bytes.Buffer
		served := ""
		d := Daemon[string]{
			Name: "testd", About: "Tests.", Path: "/etc/testd.toml",
			Load: func(path string) (string, error) { return "from " + path, c.load },
			Serve: func(_ context.Context, cfg string, _ io.Writer) error {
				served = cfg
				return c.serve
			},
		}
		if status := d.Main(t.Context(), c.args, &stderr); status != c.status || stderr.String() != c.says {
			t.Errorf("%s: status %d, want %d; it says %q, want %q", name, status, c.status, stderr.String(), c.says)
		}
		if name == "its file" && served != "from x.toml" {
			t.Errorf("%s: served with %q", name, served)
		}
	}
}
