package jobscript

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/greylag/greylag/pkg/cluster"
)

// FuzzScript: whatever a script holds, it is refused or resolved, and no message
// carries a control character to the terminal.
func FuzzScript(f *testing.F) {
	for _, text := range []string{"#!/bin/sh\n#GSUB -t 5\n", "#!/bin/sh\n#SBATCH --comment='\n#GSUB -x\\", "#!/bin/sh\r\n", "\x00", "#!/bin/sh\n#GSUB --job-name=\x1b[31m"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Read("job.sh", bytes.NewReader(text))
		if err != nil {
			clean(t, err.Error())
			return
		}
		for _, d := range s.Directives() {
			if d.Line < 1 || d.Line > bytes.Count(text, []byte("\n"))+1 {
				t.Errorf("line %d of %q", d.Line, text)
			}
		}
		o, warnings, err := Resolve(Line{}, nil, s, noon)
		clean(t, strings.Join(warnings, ""))
		if err != nil {
			clean(t, err.Error())
			return
		}
		sane(t, o)
	})
}

// FuzzOptions: the same of command lines; words are separated by newlines.
func FuzzOptions(f *testing.F) {
	for _, text := range []string{"--time=5\njob.sh", "-G\nh100:8\n-c4", "--gpus-per-task=65536\n--ntasks-per-node=65536", "-d\nafterok:1", "--nice=-1\n--begin=now+1", "--é", "-é", "-"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		line, err := CommandLine(strings.Split(text, "\n"))
		if err != nil {
			clean(t, err.Error())
			return
		}
		o, warnings, err := Resolve(line, nil, Script{}, noon)
		clean(t, strings.Join(warnings, ""))
		if err != nil {
			clean(t, err.Error())
			return
		}
		sane(t, o)
	})
}

// FuzzTime: a time limit that is read is written in a form that reads the same.
func FuzzTime(f *testing.F) {
	for _, word := range []string{"5", "1:30:00", "2-12", "UNLIMITED", "now+1h", "16:00"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if d, err := cluster.ParseLimit(word); err == nil && d >= time.Hour {
			if again, err := cluster.ParseLimit(cluster.FormatLimit(d)); err != nil || again != d {
				t.Errorf("%q is %v, written %q, which is %v, %v", word, d, cluster.FormatLimit(d), again, err)
			}
		}
		if at, err := ParseMoment(word, noon); err == nil && at.Sub(noon) > farthest {
			t.Errorf("%q is %v", word, at)
		}
	})
}

// FuzzSize: a size that is read is written in a form that reads the same.
func FuzzSize(f *testing.F) {
	for _, word := range []string{"1", "64G", "10KiB", "9T", "1B"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		n, err := cluster.ParseBytes(word, cluster.MiB)
		if err != nil {
			return
		}
		if again, err := cluster.ParseBytes(n.String(), 1); n < 0 || err != nil || again != n {
			t.Errorf("%q is %d, written %q, which is %d, %v", word, n, n, again, err)
		}
	})
}

func clean(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
		t.Errorf("message %q would garble a terminal", text)
	}
}

func sane(t *testing.T, o Options) {
	t.Helper()
	q := o.Request
	for _, n := range []int32{q.Nodes, q.GPUs, q.GPUsPerNode, q.TasksPerNode, q.CPUsPerTask} {
		if n < 0 {
			t.Errorf("a negative amount in %+v", q)
		}
	}
	clean(t, o.Name+o.Account+o.Partition+o.QOS+o.Comment+o.Output+o.Error+o.Input+o.WorkDir+o.Image)
}
