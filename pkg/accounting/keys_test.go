package accounting

import (
	"errors"
	"testing"
	"time"
)

// TestLastingKeys repeats a grant years later, on the ledger itself and on a restored one, and a
// refused one, which is only remembered for the retention time.
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
		if l.HasKey(refused.Key) {
			t.Error("a refusal is remembered permanently")
		}
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
