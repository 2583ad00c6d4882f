package manpage

import (
	"strings"
	"testing"
	"time"
)

// body returns a page after its heading.
func body(p *Page) string {
	_, text, _ := strings.Cut(p.Write(time.Time{}, "1"), ".SH NAME\n")
	return text
}

func TestAddHelp(t *testing.T) {
	for name, c := range map[string]struct{ help, want string }{
		"getopt": {
			"usage: gx [OPTIONS] FILE\n       gx -   (from a pipe)\n\nDoes it.\n.Twice.\n\nInput:\n  -f, --file FILE             a file\n                              to read\n" +
				"      --a-very-long-option-name VALUE\n                              text\n\nLetters:\n  %i ID  %j NAME\n\nExit status:\n  0    done\n  With --wait: other.\n",
			"x \\- y\n.SH \"SYNOPSIS\"\n.nf\n\\fBgx\\fR [OPTIONS] FILE\n\\fBgx\\fR \\-   (from a pipe)\n.fi\n.SH \"DESCRIPTION\"\nDoes it.\n\\&.Twice.\n" +
				".SH \"OPTIONS\"\n.SS \"Input\"\n.TP\n\\fB\\-f, \\-\\-file FILE\\fR\na file to read\n.TP\n\\fB\\-\\-a\\-very\\-long\\-option\\-name VALUE\\fR\ntext\n" +
				".SS \"Letters\"\n.PP\n.RS 4\n.nf\n%i ID  %j NAME\n.fi\n.RE\n.SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\ndone\n.PP\nWith \\-\\-wait: other.\n",
		},
		"cobra": {
			"Does it:\n\n  gx a\n\nUsage:\n  gx [command]\n\nNodes:\n  drain       Drain nodes\n\nAdditional Commands:\n  help        Help about any command\n\nFlags:\n" +
				"  -h, --help         help for gx\n      --n string     text (default \"a'b\")\n\nUse \"gx [command] --help\" for more information about a command.\n",
			"x \\- y\n.SH \"SYNOPSIS\"\n.nf\n\\fBgx\\fR [command]\n.fi\n.SH \"DESCRIPTION\"\nDoes it:\n.PP\n.RS 4\n.nf\ngx a\n.fi\n.RE\n.SH \"COMMANDS\"\n.SS \"Nodes\"\n.TP\n" +
				"\\fBdrain\\fR\nDrain nodes\n.SH \"OPTIONS\"\n.TP\n\\fB\\-h, \\-\\-help\\fR\nhelp for gx\n.TP\n\\fB\\-\\-n string\\fR\ntext (default \"a\\(aqb\")\n",
		},
		"flag": {
			"usage: gd [--config FILE]\n\nServes.\nExit status: 0 stopped,\n1 failed.\n\nFlags, the same for all:\n  -config file\n    \tread this file\n  -dev\n    \ttry\n",
			"x \\- y\n.SH \"SYNOPSIS\"\n.nf\n\\fBgd\\fR [\\-\\-config FILE]\n.fi\n.SH \"DESCRIPTION\"\nServes.\n.SH \"OPTIONS\"\n.TP\n\\fB\\-config file\\fR\nread this file\n" +
				".TP\n\\fB\\-dev\\fR\ntry\n.SH \"EXIT STATUS\"\n0 stopped, 1 failed.\n",
		},
	} {
		p := &Page{Name: "x", Section: 1, Summary: "y"}
		p.AddHelp(c.help)
		if got := body(p); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestCommands(t *testing.T) {
	p := &Page{}
	list := p.AddHelp("Usage:\n  gx [command]\n\nNodes:\n  drain       Drain nodes\n  what-if     Try a change\n\nUse \"gx [command] --help\" for more.\n")
	if len(list) != 2 || list[1] != (Command{"what-if", "Try a change"}) {
		t.Error(list)
	}
}

func TestAddReference(t *testing.T) {
	p := &Page{Name: "x", Section: 5}
	err := p.AddReference("# x.toml: the Daemon\n\nRead `a-b`\nand [the page](y.md).\n\n## Log\n| key | type | default | meaning |\n|---|---|---|---|\n| `log.level` | string | `\"info\"` | lowest level; **not** less |\n")
	const want = "x \\- the Daemon\n.SH \"DESCRIPTION\"\nRead \\fBa\\-b\\fR and the page.\n.SH \"KEYS\"\n.SS \"Log\"\n.TP\n\\fBlog.level\\fR\nLowest level; \\fBnot\\fR less.\nType: string.\nDefault: \\fB\"info\"\\fR.\n"
	if got := body(p); err != nil || got != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
	}
	if err := p.AddReference("# x\n\n| a | b |\n|---|---|\n| c |\n"); err == nil {
		t.Error("a row with too few cells is accepted")
	}
}

func TestHeading(t *testing.T) {
	p := &Page{Name: "gctl-x", Section: 1, Summary: "é"}
	const want = ".TH \"GCTL\\-X\" 1 \"2027-01-15\" \"Greylag v1\" \"Greylag Manual\"\n"
	if got := p.Write(time.Unix(1_800_000_000, 0), "v1"); !strings.HasPrefix(strings.Replace(got, `2027\-01\-15`, "2027-01-15", 1), want) || !strings.Contains(got, `\[u00E9]`) {
		t.Error(got)
	}
}
