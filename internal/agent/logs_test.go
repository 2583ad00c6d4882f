package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/userfile"
)

// pushedText returns the output pushed for a request so far, and how it ended.
func (n *node) pushedText(id string) (text string, eof bool, failure string) {
	var b bytes.Buffer
	for _, chunk := range n.pushed[id] {
		b.Write(chunk.GetData())
		eof = eof || chunk.GetEof()
		failure += chunk.GetError()
	}
	return b.String(), eof, failure
}

func (n *node) askLog(request *greylagv1.LogRequest) {
	n.change(func() { n.logs = append(n.logs, request) })
}

func TestFollowsOutput(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		n.askLog(&greylagv1.LogRequest{Id: "early", Job: 1, Attempt: 1, Follow: true})
		n.want(at(1, 1), "#!/bin/sh\necho one\nuntil [ -e go ]; do sleep 0.02; done\necho two\necho bad >&2\n", func(w *greylagv1.WantedTask) {
			w.WorkDir, w.Output, w.Error = n.home, "out", "err"
		})
		n.reach(at(1, 1), "started")
		spec := n.wanted[at(1, 1)] // never changed again
		n.askLog(&greylagv1.LogRequest{Id: "follow", Job: 1, Attempt: 1, Follow: true})
		n.askLog(&greylagv1.LogRequest{Id: "follow", Job: 1, Attempt: 1, Follow: true}) // repeated with every set
		n.until("the first line", func() bool { text, _, _ := n.pushedText("follow"); return text == "one\n" })
		touch(t, n, "go")
		n.until("the end", func() bool {
			text, eof, failure := n.pushedText("follow")
			return text == "one\ntwo\n" && eof && failure == ""
		})
		n.settled(at(1, 1))
		n.until("forgotten", func() bool { return n.last(at(1, 1)) == nil })
		n.askLog(&greylagv1.LogRequest{Id: "tail", Job: 1, Attempt: 1, Offset: -1, Tail: 4, Task: spec})
		n.askLog(&greylagv1.LogRequest{Id: "lines", Job: 1, Attempt: 1, Offset: -1, TailLines: 1, Task: spec})
		n.askLog(&greylagv1.LogRequest{Id: "from", Job: 1, Attempt: 1, Offset: 2, Task: spec})
		n.askLog(&greylagv1.LogRequest{Id: "error", Job: 1, Attempt: 1, Error: true, Task: spec})
		n.askLog(&greylagv1.LogRequest{Id: "unknown", Job: 99, Attempt: 1})
		n.until("the answers", func() bool {
			tail, eof1, _ := n.pushedText("tail")
			lines, eof5, _ := n.pushedText("lines")
			bad, eof2, _ := n.pushedText("error")
			_, eof3, failure := n.pushedText("unknown")
			rest, eof6, _ := n.pushedText("from")
			known := len(n.pushed["from"]) > 0 && n.pushed["from"][0].GetNext() == 8
			_, eof4, _ := n.pushedText("early") // with or without a message: the task may have arrived later
			return eof4 && eof6 && rest == "e\ntwo\n" && known && tail == "two\n" && lines == tail && eof5 && eof1 && bad == "bad\n" && eof2 && eof3 && strings.Contains(failure, "does not know")
		})
	})
}

// TestLastLines compares the last lines of an output with tail(1), also for a line that is longer
// than one read.
func TestLastLines(t *testing.T) {
	long := strings.Repeat("x", 3*logChunk/2)
	for text, want := range map[string][]string{ // the last line, the last two, ...
		"":                            {"", ""},
		"a":                           {"a", "a"},
		"a\n":                         {"a\n", "a\n"},
		"a\nb":                        {"b", "a\nb", "a\nb"},
		"\n\nc\n":                     {"c\n", "\nc\n", "\n\nc\n", "\n\nc\n"},
		"a\n" + long + "\nb\n" + long: {long, "b\n" + long, long + "\nb\n" + long},
		long[:logChunk-1] + "\n" + long[:logChunk]: {long[:logChunk], long[:logChunk-1] + "\n" + long[:logChunk]},
	} {
		for i, last := range want {
			at, err := lastLines(t.Context(), strings.NewReader(text), int64(len(text)), int64(i+1))
			if err != nil || text[at:] != last {
				t.Errorf("the last %d lines of %d bytes begin at %d, %v: want the last %d", i+1, len(text), at, err, len(last))
			}
		}
	}
}

// TestReadsOutputAsItsUser checks that gnoded reads nothing that the user cannot read, whatever the
// path.
func TestReadsOutputAsItsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: reading as another user")
	}
	dir, err := os.MkdirTemp(shared.dir, "read")
	if err != nil {
		t.Fatal(err)
	}
	secret, own, link := filepath.Join(dir, "secret"), filepath.Join(dir, "own"), filepath.Join(dir, "link")
	for path, mode := range map[string]os.FileMode{secret: 0o600, own: 0o644} {
		if err := os.WriteFile(path, []byte("words"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	user := tasks.Owner{UID: 1000, GID: 1000, Groups: []uint32{1000}}
	for path, readable := range map[string]bool{secret: false, link: false, own: true, dir: false, "/dev/null": false} {
		file, err := userfile.Read(user, path)
		if (err == nil) != readable {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			_ = file.Close()
		}
	}
	if file, err := userfile.Read(tasks.Owner{}, secret); err != nil {
		t.Errorf("root's own file as root, afterwards: %v", err)
	} else {
		_ = file.Close()
	}
}
