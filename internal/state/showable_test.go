package state

import (
	"hash/fnv"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestTextsThatMislead checks that a new text with a control character is refused, whatever it
// describes, and that a job that changes keeps its name.
func TestTextsThatMislead(t *testing.T) {
	const turned = "\u05e0\u05d9\u05e1\u05d5\u05d9\u200f (1)" // a mark that keeps the bracket on its side
	x := newScript(t)
	for line := range strings.Lines("at 1h\nnode n1 gpus=8:h100 cpus=64\npolicy root\naccount op add ml + add ml user=ada\nsubmit ada account=ml\n") {
		x.run(strings.TrimSpace(line))
	}
	text := "two\nlines, " + turned
	for name, c := range map[string]command.Command{
		"description": &command.EditAccounts{Actor: actor("op"), Edits: []command.AccountEdit{{Action: command.ModifyAccount, Account: "ml", Description: &text}}},
		"note":        &command.ChangeCredits{Actor: actor("root"), Action: command.GrantCredits, Account: "ml", Amount: accounting.One, Class: accounting.Purchase, Note: turned},
		"job":         &command.SubmitJobs{Actor: actor("ada"), Jobs: []command.Submission{{Spec: cluster.JobSpec{Name: turned, Account: "ml", Owner: actor("ada").Identity, TimeLimit: time.Hour}}}},
	} {
		if got := x.apply(c); !strings.Contains(got, "refused") {
			t.Errorf("a %s: %s", name, got)
		}
	}
	if got := x.run("set ada 1 comment=fine"); strings.Contains(got, "refused") {
		t.Errorf("a comment without such characters: %s", got)
	}
}

// TestCharacters checks that texts of the state follow Go's tables of Unicode, by the characters
// that are replaced (plain), quoted, and refused in lower case. Another Go version may have other
// tables.
func TestCharacters(t *testing.T) {
	sum := fnv.New64a()
	for r := range unicode.MaxRune + 1 {
		var is byte
		if cluster.UnsafeToDisplay(r) {
			is |= 1
		}
		if strconv.IsPrint(r) {
			is |= 2
		}
		lower := unicode.ToLower(r)
		sum.Write([]byte{is, byte(lower), byte(lower >> 8), byte(lower >> 16)})
	}
	const want = 0xc86ac3e864423125
	if got := sum.Sum64(); got != want {
		t.Errorf("characters are %#x, not %#x: members built with another Go make another state of the same texts; raise DigestVersion with it", got, uint64(want))
	}
}
