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

// TestTurnedBefore: texts that were accepted before form 5 make the same of a log, and a
// snapshot that has them is restored; from form 5 on they are refused.
func TestTurnedBefore(t *testing.T) {
	const turned = "\u05e0\u05d9\u05e1\u05d5\u05d9\u200f (1)" // a mark that keeps the bracket on its side
	x := newScript(t)
	x.s.credits = accounting.NewBare()
	x.s.credits.Write(4)
	for line := range strings.Lines("at 1h\nnode n1 gpus=8:h100 cpus=64\npolicy root\naccount op add ml + add ml user=ada\n") {
		x.run(strings.TrimSpace(line))
	}
	text := "two\nlines, " + turned
	describe := &command.EditAccounts{Actor: actor("op"), Edits: []command.AccountEdit{{Action: command.ModifyAccount, Account: "ml", Description: &text}}}
	grant := &command.ChangeCredits{Actor: actor("root"), Action: command.GrantCredits, Account: "ml", Amount: accounting.One, Class: accounting.Purchase, Note: turned}
	submit := func() command.Command {
		return &command.SubmitJobs{Actor: actor("ada"), Jobs: []command.Submission{{Spec: cluster.JobSpec{Name: turned, Account: "ml", Owner: actor("ada").Identity, TimeLimit: time.Hour}}}}
	}
	for _, c := range []command.Command{describe, grant, submit()} {
		if got := x.apply(c); strings.Contains(got, "refused") {
			t.Errorf("before form 5: %s", got)
		}
	}
	restore(t, encode(t, x.s), x.s.Digest())
	x.apply(&command.Tick{Form: 5})
	if got := x.run("set ada 1 comment=fine"); strings.Contains(got, "refused") {
		t.Errorf("what a job had before: %s", got)
	}
	for _, c := range []command.Command{describe, grant, submit()} {
		if got := x.apply(c); !strings.Contains(got, "refused") {
			t.Errorf("in form 5: %s", got)
		}
	}
	x.apply(&command.Tick{Form: 6})
	if got := x.apply(describe); strings.Contains(got, "refused") {
		t.Errorf("the description that the account had before: %s", got)
	}
	other := text + "\u200f"
	describe.Edits[0].Description = &other
	if got := x.apply(describe); !strings.Contains(got, "refused") {
		t.Errorf("in form 6: %s", got)
	}
}

// TestCharacters: texts of the state follow Go's tables of Unicode, by what is replaced in
// them (plain), quoted in them, and refused in lower case. Another Go may have other tables.
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
