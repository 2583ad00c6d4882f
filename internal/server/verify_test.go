package server_test

import (
	"bytes"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
)

// TestVerifyNamesTheEntry checks that verification names an entry that was changed in a
// controller's archive, whichever byte changed, and the next entry if one was rewritten completely.
func TestVerifyNamesTheEntry(t *testing.T) {
	w := newCreditCluster(t, false)
	for i := range int64(20) {
		_, err := change(w, root, grantRequest(&greylagv1.GrantCredits{Account: "maths", Amount: i + 1}))
		must(t, err)
	}
	verify := func() *greylagv1.VerifiedJournal {
		got, err := w.as(root).Credits().VerifyJournals(t.Context(), &greylagv1.VerifyJournalsRequest{})
		must(t, err)
		if got.Journals[0].Name != greylagv1.Journal_JOURNAL_CREDITS || got.Journals[1].Name != greylagv1.Journal_JOURNAL_AUDIT || got.Journals[1].Fault != "" || got.Controller != w.all[0].log.Status().ID {
			t.Fatalf("verified %v", got.Journals)
		}
		return got.Journals[0]
	}
	if whole := verify(); whole.Fault != "" || whole.BadEntry != 0 || whole.Entries != 21 {
		t.Fatalf("the whole journal: %v", whole)
	}
	store := w.all[0].store
	rows, err := store.Rows(archive.CreditJournal, 1, 100)
	must(t, err)
	put := func(from int, changed []byte) {
		tail := append([]archive.Row{{Seq: rows[from].Seq, Data: changed}}, rows[from+1:]...)
		must(t, store.AppendRows(1, archive.CreditJournal, tail))
	}
	for at := range rows[11].Data {
		changed := bytes.Clone(rows[11].Data)
		changed[at] ^= 1
		put(11, changed)
		if got := verify(); got.BadEntry != 12 || !strings.Contains(got.Fault, "entry 12") {
			t.Fatalf("byte %d of entry 12 was changed: %v", at, got)
		}
	}
	put(11, rows[11].Data)
	forged, err := accounting.ReadRow(rows[15].Data)
	must(t, err)
	forged.Amount++
	forged.Terms.Amount++
	forged.Hash = forged.Sum()
	put(15, forged.AppendRow(nil))
	if got := verify(); got.BadEntry != 17 {
		t.Errorf("entry 16 was rewritten: %v", got)
	}
	put(15, rows[15].Data)
	if got := verify(); got.Fault != "" {
		t.Errorf("the whole journal again: %v", got)
	}
}

// TestAuditKinds checks that an unknown kind is refused with the list of kinds.
func TestAuditKinds(t *testing.T) {
	w := newCreditCluster(t, false)
	for text, want := range map[string]int{"init": 1, "signal": 0, "signal 9": 0, "restore": 0} {
		kind, signal := wire.AuditKind(text)
		stream, err := w.as(root).Cluster().StreamAudit(t.Context(), &greylagv1.StreamAuditRequest{Kind: kind, Signal: signal})
		must(t, err)
		n := 0
		for ; stream.Receive(); n++ {
			if got := wire.AuditKindWord(stream.Msg().GetKind(), stream.Msg().GetSignal()); got != text {
				t.Errorf("%s: an entry of the kind %s", text, got)
			}
		}
		if must(t, stream.Err()); n != want {
			t.Errorf("%s: %d entries", text, n)
		}
		must(t, stream.Close())
	}
}
