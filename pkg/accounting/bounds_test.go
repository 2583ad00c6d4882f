package accounting

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// sound fails the test unless the ledger and its journal are consistent.
func sound(t *testing.T, l *Ledger, a *Audit) {
	t.Helper()
	for _, e := range l.Drain() {
		if err := a.Add(&e); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{l.Check(), a.CompareWith(l)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if l.recount() != l.digest {
		t.Fatal("the digest is of something else")
	}
}

// TestLargestAmounts grants the largest possible total and charges beyond every bound.
func TestLargestAmounts(t *testing.T) {
	l, a := New(), new(Audit)
	var err error
	granted := 0
	for ; err == nil; granted++ {
		_, err = l.Grant(Stamp{At: base, Key: fmt.Sprint(granted)}, Grant{Owner: chainOf(fmt.Sprintf("o/p%d", granted%2)), Class: Purchase, Amount: MaxAmount})
	}
	if !errors.Is(err, ErrAmount) || granted-1 != 512 {
		t.Errorf("after %d grants: %v", granted-1, err)
	}
	sound(t, l, a)
	// One lien is charged beyond the largest amount, whatever run time is reported.
	id, rates, s := LienID{11, 1}, []Rate{{"H100", MaxAmount}}, Stamp{At: base, Key: "job", Natural: true}
	if _, err := l.CreateLien(s, Claim{ID: LienID{1, 1}, Chain: chainOf("o/q/ana"), Rates: rates, Amount: 1}); !errors.Is(err, ErrCredits) {
		t.Errorf("a sibling's credits: %v", err)
	}
	if _, err := l.CreateLien(s, Claim{ID: id, Chain: chainOf("o/p0"), Rates: rates, Amount: MaxAmount}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.StartBilling(s, id, GPUs{"H100", maxGPUs}); err != nil {
		t.Fatal(err)
	}
	s.At = base.Add(1000 * 24 * time.Hour)
	l.Meter(s.At, []Sample{{Lien: id, Number: 1, Count: math.MaxInt64}})
	if r, err := l.Settle(s, Settlement{Lien: id, Total: math.MaxInt64}); err != nil || r.Charged != maxTotal/2 {
		t.Fatalf("it was charged %+v, %v", r, err)
	}
	sound(t, l, a)
	n := l.Payer("o")
	if used := n.Used(l.Now()); used < 0 || used > maxTotal {
		t.Errorf("the organisation has used %s", used)
	}
	if _, err := l.Correct(Stamp{At: base, Key: "more", Natural: true}, Refund{Lien: LienID{11, 1}, Amount: MaxAmount}); err != nil {
		t.Error(err)
	}
	sound(t, l, a)
}

// TestEndOfTime uses the largest instant, and then earlier ones.
func TestEndOfTime(t *testing.T) {
	l, a := rich(), new(Audit)
	id := LienID{1, 1}
	l.CreateLien(Stamp{At: base, Key: "p"}, Claim{ID: id, Chain: chainOf("o/p/ana"), Rates: []Rate{{"H100", One}}, Amount: One})
	l.StartBilling(Stamp{At: base, Key: "d"}, id, GPUs{"H100", 8})
	for i, at := range []cluster.Instant{math.MaxInt64, math.MinInt64, base, math.MaxInt64} {
		before := l.Now()
		l.Meter(at, []Sample{{Lien: id, Number: uint64(i + 1), Count: int64(i+1) * 1000}})
		if l.Now() < before || l.Now() > latest {
			t.Fatalf("after %d it is %d", at, l.Now())
		}
		sound(t, l, a)
	}
	if _, err := l.Settle(Stamp{At: 1, Key: "s"}, Settlement{Lien: id, Total: -1}); err != nil {
		t.Error(err)
	}
	sound(t, l, a)
}

// TestLiveBuckets fills an account up to its largest number of buckets.
func TestLiveBuckets(t *testing.T) {
	l, a := New(), new(Audit)
	grant := func(owner string, i int) error {
		_, err := l.Grant(Stamp{At: base, Key: fmt.Sprint(owner, i)}, Grant{Owner: chainOf(owner), Class: Promo, Amount: One, Expires: base.Add(time.Duration(i+1) * time.Hour)})
		return err
	}
	for i := range maxLive {
		if err := grant("o/p", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := grant("o/p", maxLive); !errors.Is(err, ErrInvalid) {
		t.Errorf("one more: %v", err)
	}
	if err := grant("o/q", 0); err != nil {
		t.Errorf("a sibling's: %v", err)
	}
	r, err := l.CreateLien(Stamp{At: base, Key: "all"}, Claim{ID: LienID{1, 1}, Chain: chainOf("o/p/ana"), Rates: []Rate{{"H100", One}}, Amount: maxLive * One})
	if err != nil || r.Held != maxLive*One {
		t.Fatal(r, err)
	}
	sound(t, l, a)
	if _, err := decoded(encoded(t, l)); err != nil {
		t.Error(err)
	}
	l.Advance(base.Add(2000 * time.Hour))
	sound(t, l, a)
	if err := grant("o/p", 5000); err != nil {
		t.Errorf("when the others are spent: %v", err)
	}
}

// TestHostileNames passes names and lists that are too long.
func TestHostileNames(t *testing.T) {
	l, a := rich(), new(Audit)
	long := string(make([]byte, 5000))
	s := Stamp{At: base, Key: "k", Natural: true}
	claim := Claim{ID: LienID{1, 1}, Chain: chainOf("o/p"), Rates: []Rate{{"H100", One}}, Amount: One}
	bad := map[string]func() error{
		"key":        func() error { _, err := l.ChargeAccrued(Stamp{At: base, Key: long}, LienID{}); return err },
		"account":    func() error { _, err := l.SetBudget(s, PayerPath{PayerID(long)}, Budget{}); return err },
		"no account": func() error { _, err := l.SetBudget(s, nil, Budget{}); return err },
		"deep":       func() error { _, err := l.SetBudget(s, make(PayerPath, 100), Budget{}); return err },
		"move":       func() error { _, err := l.Move(s, PayerPath{"o/p", PayerID(long)}); return err },
		"move of it": func() error { _, err := l.Move(s, nil); return err },
		"price":      func() error { _, err := l.SetPrice(s, Rate{long, One}, 0); return err },
		"period":     func() error { _, err := l.ClosePeriod(s, long, base); return err },
		"type":       func() error { _, err := l.StartBilling(s, LienID{1, 1}, GPUs{long, 1}); return err },
		"no GPUs":    func() error { _, err := l.StartBilling(s, LienID{1, 1}, GPUs{"H100", 0}); return err },
		"minus GPUs": func() error { _, err := l.StartBilling(s, LienID{1, 1}, GPUs{"H100", -8}); return err },
		"code": func() error {
			_, err := l.Grant(s, Grant{Owner: chainOf("o"), Class: Promo, Amount: 1, Code: long, MaxRedemptions: 1})
			return err
		},
		"scope": func() error {
			_, err := l.Grant(s, Grant{Owner: chainOf("o"), Class: Promo, Amount: 1, Scope: BucketScope{QOS: make([]string, 999)}})
			return err
		},
		"long ago": func() error {
			_, err := l.Grant(s, Grant{Owner: chainOf("o"), Class: Promo, Amount: 1, Effective: -1})
			return err
		},
		"partition":   func() error { c := claim; c.Partition = long; _, err := l.CreateLien(s, c); return err },
		"rates":       func() error { c := claim; c.Rates = make([]Rate, 999); _, err := l.CreateLien(s, c); return err },
		"minus price": func() error { c := claim; c.Rates = []Rate{{"H100", -1}}; _, err := l.CreateLien(s, c); return err },
	}
	for name, do := range bad {
		if err := do(); !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrAmount) {
			t.Errorf("%s: %v", name, err)
		}
	}
	sound(t, l, a)
	if l.liens.Len() != 0 || l.nodes.Len() != 2 {
		t.Errorf("%d liens, %d accounts", l.liens.Len(), l.nodes.Len())
	}
}
