package accounting

import (
	"testing"
	"time"
)

// TestFloatingFromFormThree runs a floating job over the entry from which on prices are
// followed: what it was charged before stays, what changes afterwards is followed, and the
// journal is found whole, also where more is set aside for it and where its bill is amended.
func TestFloatingFromFormThree(t *testing.T) {
	for name, ends := range map[string]func(l *Ledger, s Stamp, id LienID) error{
		"settled": func(l *Ledger, s Stamp, id LienID) error {
			_, err := l.Settle(s, Settlement{Lien: id, Total: millis(2, (4 * time.Hour).Milliseconds())})
			return err
		},
		"amended": func(l *Ledger, s Stamp, id LienID) error {
			if _, err := l.Settle(s, Settlement{Lien: id, Total: -1, Provisional: true}); err != nil {
				return err
			}
			_, err := l.Amend(s, id, millis(2, (4*time.Hour).Milliseconds()))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewBare()
			l.Write(2)
			at := func(hours int) Stamp {
				return Stamp{At: base.Add(time.Duration(hours) * time.Hour), Key: "job", Natural: true}
			}
			id, chain := LienID{1, 1}, chainOf("o/ana")
			do := func(_ Receipt, err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			do(l.Grant(at(0), Grant{Owner: chain, Class: Purchase, Amount: 100 * One}))
			do(l.SetPrice(at(0), Rate{"H100", One}, 0))
			do(l.Place(at(0), Claim{ID: id, Chain: chain, Partition: "main", Rates: []Rate{{"H100", One}}, Amount: 10 * One, Floating: true}))
			do(l.Dispatch(at(0), id, GPUs{"H100", 2}))
			do(l.SetPrice(at(1), Rate{"H100", 2 * One}, 0))
			l.Meter(at(2).At, []Sample{{Lien: id, Number: 1, Count: millis(2, (2 * time.Hour).Milliseconds())}})
			do(l.Roll(at(2), id))
			l.Write(Form)
			all := l.Drain()
			l = mustDecode(t, encoded(t, l))

			do(l.SetPrice(at(3), Rate{"H100", 4 * One}, 0))
			do(l.Resize(at(3), id, 20*One))
			if err := ends(l, at(4), id); err != nil {
				t.Fatal(err)
			}
			// Three hours of two GPUs at what they cost when it began, one at what changed since.
			if n, _ := l.Lien(id); n.Paid() != 3*2*One+2*4*One {
				t.Errorf("it paid %s", n.Paid())
			}
			audit := NewAudit(l)
			for _, e := range append(all, l.Drain()...) {
				if err := audit.Add(&e); err != nil {
					t.Fatal(err)
				}
			}
			if err := audit.Against(l); err != nil {
				t.Error(err)
			}
		})
	}
}
