package state

import (
	"bufio"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/test/scenario"
)

// The result of Apply for a log is a contract between members: two builds that compute different
// states from the same entries must not run together without announcing it (docs/adr/0014).
// testdata/rules-F.log.gz holds the commands of all scenarios at the time when form F of the
// journal of credits was the newest; rules-F.golden is the state that they lead to.

// rulesOf returns the result of a log of a form: the DigestVersion, and by scenario the head of the
// journal and the digest of the state.
func rulesOf(t *testing.T, form uint8) string {
	f, err := os.Open(fmt.Sprintf("testdata/rules-%d.log.gz", form))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := fmt.Sprintf("DigestVersion %d\n", DigestVersion)
	var s *State
	var of string
	end := func() {
		if s != nil {
			seq, head := s.credits.Ledger().Head()
			out += fmt.Sprintf("%s: %d entries, %x, digest %016x\n", of, seq, head[:6], s.Digest())
		}
	}
	lines := bufio.NewScanner(unzip)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var name, data string
		var e entry
		if _, err := fmt.Sscan(lines.Text(), &name, &e.index, &e.at, &data); err != nil {
			t.Fatal(err)
		}
		if name != of {
			end()
			s, of = newState(scripted, new(table.Hasher)), name
			s.credits.Ledger().SetFormat(form)
		}
		encoded, err := base64.StdEncoding.DecodeString(data)
		if err == nil {
			e.c, err = command.Decode(encoded)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Apply(e.index, e.at, e.c)
		s.Effects()
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	end()
	return out
}

// recordLog writes the commands of all scenarios.
func recordLog(t *testing.T, form uint8) {
	f, err := os.Create(fmt.Sprintf("testdata/rules-%d.log.gz", form))
	if err != nil {
		t.Fatal(err)
	}
	zip := gzip.NewWriter(f)
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		x := newScript(t)
		datadriven.RunTest(t, path, x.answerAll)
		for _, e := range x.log {
			fmt.Fprintln(zip, filepath.Base(path), e.index, int64(e.at), base64.StdEncoding.EncodeToString(command.Encode(e.c)))
		}
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// sameBooks compares the journals of two lists of rules.
func sameBooks(a, b string) bool {
	journal := func(text string) (out string) {
		for line := range strings.Lines(text) {
			head, _, _ := strings.Cut(line, ", digest")
			if !strings.HasPrefix(line, "DigestVersion") {
				out += head + "\n"
			}
		}
		return out
	}
	return journal(a) == journal(b)
}

// TestRules fails if Apply computes another result from the same log than the build before, and no
// version that members exchange was raised.
func TestRules(t *testing.T) {
	newest := fmt.Sprintf("testdata/rules-%d.golden", accounting.Form)
	if _, err := os.Stat(newest); err != nil {
		if !scenario.Rewrite() {
			t.Fatalf("form %d of the journal of credits is new: run go test ./internal/state -run TestRules -rewrite", accounting.Form)
		}
		before, _ := os.ReadFile(fmt.Sprintf("testdata/rules-%d.golden", accounting.Form-1)) // none before form 1
		if strings.HasPrefix(string(before), fmt.Sprintf("DigestVersion %d\n", DigestVersion)) {
			t.Fatal("members agree on a new form when they have the same DigestVersion: raise it with the form")
		}
		recordLog(t, accounting.Form)
	}
	for form := uint8(1); form <= accounting.Form; form++ {
		file := fmt.Sprintf("testdata/rules-%d.golden", form)
		got := rulesOf(t, form)
		data, err := os.ReadFile(file)
		want := string(data)
		version, _, _ := strings.Cut(want, "\n")
		switch {
		case err != nil && !scenario.Rewrite():
			t.Fatal(err)
		case err == nil && got == want:
			continue
		case err == nil && !sameBooks(got, want):
			t.Errorf(`a log in form %[1]d of the journal of credits leads to other entries than before:
%[2]s
A rule that moves money differently waits until all members have it: raise accounting.Form, and apply the new rule from that
form on (docs/adr/0014). A form that was never released may be recorded again: remove testdata/rules-%[1]d.*, raise
DigestVersion, -rewrite.`, form, otherLines(want, got))
		case err == nil && strings.HasPrefix(got, version+"\n"):
			t.Errorf(`Apply computes another state from the same log than before:
%s
Raise DigestVersion (internal/state/digest.go), or members of two builds stop each other; then -rewrite.`, otherLines(want, got))
		case !scenario.Rewrite():
			t.Errorf("%s is of another DigestVersion: run go test ./internal/state -run TestRules -rewrite", file)
		default:
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// otherLines returns the lines of the second text that the first lacks.
func otherLines(before, after string) (lines string) {
	for line := range strings.Lines(after) {
		if !strings.Contains(before, line) {
			lines += "    " + line
		}
	}
	return lines
}

// scripted bounds the state of a scenario.
var scripted = limits{tail: 20, requests: 10, requestBytes: 1 << 20, levels: 1000}
