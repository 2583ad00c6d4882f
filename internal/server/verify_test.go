package server_test

import (
	"bytes"
	"strings"
	"testing"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/pkg/accounting"
)

// TestVerifyNamesTheEntry: an entry that was changed in a controller's archive is named,
// whichever byte it was; one that was written anew, by the next.
func TestVerifyNamesTheEntry(t *testing.T) {
	w := newTill(t, false)
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
	if whole := verify(); whole.Fault != "" || whole.Wrong != 0 || whole.Entries != 21 {
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
		if got := verify(); got.Wrong != 12 || !strings.Contains(got.Fault, "entry 12") {
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
	if got := verify(); got.Wrong != 17 {
		t.Errorf("entry 16 was written anew: %v", got)
	}
	put(15, rows[15].Data)
	if got := verify(); got.Fault != "" {
		t.Errorf("the whole journal again: %v", got)
	}
}

// TestAuditKinds: a kind that does not exist is told, with those that do.
func TestAuditKinds(t *testing.T) {
	w := newTill(t, false)
	seqs := func(kind string) (n int, err error) {
		stream, err := w.as(root).Cluster().StreamAudit(t.Context(), &greylagv1.StreamAuditRequest{Kind: kind})
		must(t, err)
		defer stream.Close()
		for stream.Receive() {
			n++
		}
		return n, stream.Err()
	}
	if n, err := seqs("init"); err != nil || n != 1 {
		t.Errorf("%d entries, %v", n, err)
	}
	for _, kind := range []string{"signal 9", "restore", "revoke"} {
		if n, err := seqs(kind); err != nil || n != 0 {
			t.Errorf("%s: %d entries, %v", kind, n, err)
		}
	}
	if _, err := seqs("bogus"); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), `no kind "bogus"`) {
		t.Errorf("bogus: %v", err)
	}
}
