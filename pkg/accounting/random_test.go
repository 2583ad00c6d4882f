package accounting

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestRandomSequences plays 512 seeded sequences: after every command the invariants
// hold and the journal, summed anew, says the same as the ledger.
func TestRandomSequences(t *testing.T) {
	for seed := range uint64(512) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, audit, at := New(), &Audit{}, base
		for step := range 60 {
			at = at.Add(time.Duration(r.Int64N(int64(2 * time.Hour))))
			s := Stamp{at, fmt.Sprint(r.IntN(1000))}
			err := chance(l, r, s)
			for _, e := range l.Drain() {
				if bad := audit.Add(&e); bad != nil {
					t.Fatalf("seed %d step %d (%v): %v", seed, step, err, bad)
				}
			}
			if bad := l.Check(); bad != nil {
				t.Fatalf("seed %d step %d (%v): %v", seed, step, err, bad)
			}
			if bad := audit.Against(l); bad != nil {
				t.Fatalf("seed %d step %d (%v): %v", seed, step, err, bad)
			}
		}
	}
}

// chance does one command of any kind.
func chance(l *Ledger, r *rand.Rand, s Stamp) error {
	chains := []Chain{chainOf("o"), chainOf("o/p"), chainOf("o/p/ana"), chainOf("o/q/bob")}
	c := chains[r.IntN(4)]
	id := LienID{cluster.JobID(1 + r.IntN(8)), 1}
	amount := Credits(1 + r.Int64N(int64(50*One)))
	var err error
	switch r.IntN(11) {
	case 0, 1:
		g := Grant{Owner: c, Class: Class(1 + r.IntN(4)), Amount: amount, Cutoff: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			g.Expires = s.At.Add(time.Duration(1 + r.Int64N(int64(10*time.Hour))))
		}
		_, err = l.Grant(s, g)
	case 2, 3:
		_, err = l.Place(s, Claim{ID: id, Chain: c, Rates: []Rate{{"H100", 2 * One}}, Amount: amount})
	case 4:
		_, err = l.Dispatch(s, id, "H100", 1+r.Int64N(8))
	case 5:
		l.Meter(s.At, []Sample{{Lien: id, Number: uint64(r.IntN(50)), Count: r.Int64N(40 * msPerHour)}})
	case 6:
		_, err = l.Roll(s, id)
	case 7:
		_, err = l.Settle(s, Settlement{id, r.Int64N(40*msPerHour) - msPerHour, r.IntN(2) == 0})
	case 8:
		_, err = l.Refund(s, Refund{Lien: id, Amount: amount})
	case 9:
		if _, err = l.Resize(s, id, amount); err != nil {
			_, err = l.Amend(s, id, r.Int64N(40*msPerHour))
		}
	case 10:
		if r.IntN(2) == 0 {
			_, err = l.Void(s, BucketID(1+r.IntN(5)))
		} else if r.IntN(2) == 0 {
			_, err = l.Correct(s, Refund{Lien: id, Amount: amount})
		} else {
			_, err = l.SetBudget(s, c, Budget{amount * 3, r.IntN(2) == 0, Window(r.IntN(3))})
		}
	}
	return err
}
