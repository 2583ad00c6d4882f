package accounting

import (
	"errors"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/codec"
)

// TestLastingKeys asks for a grant again years later, on the ledger itself and on one that
// was restored, and for a refused one, which is only remembered for a while.
func TestLastingKeys(t *testing.T) {
	l := New()
	s := Stamp{At: base, Key: "grant:invoice", By: "ann", Note: "half", Lasting: true}
	g := Grant{Owner: chainOf("o"), Class: Purchase, Amount: One}
	if _, err := l.Grant(s, g); err != nil {
		t.Fatal(err)
	}
	if e := l.Drain(); len(e) != 1 || e[0].Note != "half" || e[0].Key != s.Key {
		t.Fatalf("the journal says %+v", e)
	}
	refused := Stamp{At: base, Key: "void:x", Lasting: true}
	if _, err := l.Void(refused, 9); !errors.Is(err, ErrNoBucket) {
		t.Fatal(err)
	}
	l.Advance(base.Add(1000 * 24 * time.Hour))
	for _, l := range []*Ledger{l, mustDecode(t, encoded(t, l))} {
		s.By, s.Note = "bob", "other"
		r, err := l.Grant(s, g)
		if err != nil || !r.Again || r.By != "ann" || r.At != base || r.Bucket != 1 || len(l.Drain()) > 0 {
			t.Errorf("again: %+v, %v", r, err)
		}
		if l.Knows(refused.Key) {
			t.Error("a refusal is remembered for ever")
		}
	}
}

// TestKeysOfOlderForms: before form 4 a key is remembered as replicas of older versions do,
// to the byte; they are compared once all are of one version.
func TestKeysOfOlderForms(t *testing.T) {
	l := NewBare()
	l.Write(formFloating)
	s := Stamp{At: base, Key: "grant:invoice", By: "ann", Note: "half", Lasting: true}
	if _, err := l.Grant(s, Grant{Owner: chainOf("o"), Class: Purchase, Amount: One}); err != nil {
		t.Fatal(err)
	}
	record, _ := l.keys.Get(s.Key)
	was, err := readOutcome(record)
	if err != nil {
		t.Fatal(err)
	}
	c := codec.Writer(nil)
	codec.Fixed(&c, was.payload[:])
	codec.Int(&c, &was.at)
	codec.Record(&c, &was.receipt, func(c *codec.Coder, x *Receipt) {
		codec.Uint(c, &x.Bucket)
		lienID(c, &x.Lien)
		var none Credits
		for range 6 {
			codec.Int(c, &none)
		}
		codec.List(c, &x.Warnings, warning)
	})
	codec.Optional(&c, &was.refusal, refusalFields)
	if record != string(c.Written()) {
		t.Errorf("remembered as\n%x, older versions do as\n%x", record, c.Written())
	}
	l.Advance(base.Add(keyRetention + time.Hour))
	if l.Knows(s.Key) {
		t.Error("it is remembered for ever")
	}
}

func mustDecode(t *testing.T, data []byte) *Ledger {
	t.Helper()
	l, err := decoded(data)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
