package accounting

import "testing"

// TestByType checks that the parts sum to the entry's amount, and over all entries of an attempt to
// the cost of the GPUs of each type, up to one micro-credit an entry.
func TestByType(t *testing.T) {
	p := newPlay(t)
	p.run(`
price H100 2
price A100 1.2
grant Q 30 to=o/p
grant R 500 to=o/p
place 1.1 by=o/p/ana types=H100,A100 gpus=8 limit=5h floating=yes
dispatch 1.1 A100 3 H100 5
price H100 7 from=2h
at 1h
meter 1.1 n=1 ran=59m59s
roll 1.1
at 3h
meter 1.1 n=2 ran=2h59m58s
roll 1.1
at 5h
settle 1.1 ran=5h
correct 1.1 0.000007
refund 1.1 3
place 2.1 by=o/p/ana types=H100 gpus=1 limit=1h
dispatch 2.1 H100 1
settle 2.1 ran=0s
correct 2.1 1
`)
	charged, back := map[string]Credits{}, map[string]Credits{}
	entries := 0
	for i := range p.journal {
		e := &p.journal[i]
		parts, sum := e.ByType(), Credits(0)
		for _, x := range parts {
			sum += x.Amount
			switch {
			case x.Amount < 0:
				t.Errorf("entry %d has a part of %s", e.Seq, x.Amount)
			case e.Kind == Refunded:
				back[x.GPUType] += x.Amount
			case e.Bill.Kind == Counted:
				charged[x.GPUType] += x.Amount
				entries++
			}
		}
		if e.Bill != nil && e.Lien.Job == 1 && sum != e.Amount || e.Lien.Job == 2 && parts != nil {
			t.Errorf("entry %d of %s has the parts %v", e.Seq, e.Amount, parts)
		}
	}
	// Three at 1.2 for five hours; five at 2 for two hours and at 7 for three.
	for kind, want := range map[string]Credits{"A100": 18 * One, "H100": 125 * One} {
		if off := charged[kind] - want; off < -Credits(entries) || off > Credits(entries) {
			t.Errorf("%s: %s was charged, want %s", kind, charged[kind], want)
		}
	}
	if off := 3*One*18/143 - back["A100"]; off < 0 || off > 3 || back["A100"]+back["H100"] != 3*One || entries < 8 {
		t.Errorf("refunded: %v, %d charges", back, entries)
	}
}
