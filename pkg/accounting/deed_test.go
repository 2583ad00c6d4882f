package accounting

import "github.com/greylag/greylag/pkg/cluster"

// deed is one command of a random sequence.
type deed struct {
	verb    string
	at      cluster.Instant
	key     string
	natural bool
	asked   Fingerprint
	chain   PayerPath
	chains  []PayerPath // of a move
	lien    LienID
	bucket  BucketID
	amount  Credits
	total   int64
	gpuType string
	gpus    int64
	yes     bool // provisional, of a settlement
	grant   Grant
	claim   Claim
	budget  Budget
	sample  Sample
	when    cluster.Instant // from, end or effective
	name    string
}

// granted returns the GPUs of a dispatch: of one type or of two.
func (d *deed) granted() []GPUs {
	if d.yes {
		return []GPUs{{"A100", d.gpus}, {"H100", 1 + d.gpus/2}}
	}
	return []GPUs{{d.gpuType, d.gpus}}
}

// on runs the command on a ledger.
func (d *deed) on(l *Ledger) (r Receipt, err error) {
	s := Stamp{At: d.at, Key: d.key, Natural: d.natural, Asked: d.asked}
	switch d.verb {
	case "grant":
		return l.Grant(s, d.grant)
	case "void":
		return l.Void(s, d.bucket)
	case "budget":
		return l.SetBudget(s, d.chain, d.budget)
	case "price":
		return l.SetPrice(s, Rate{d.gpuType, d.amount}, d.when)
	case "place":
		return l.CreateLien(s, d.claim)
	case "resize":
		return l.Resize(s, d.lien, d.amount)
	case "withdraw":
		return l.Withdraw(s, d.lien)
	case "dispatch":
		return l.StartBilling(s, d.lien, d.granted()...)
	case "roll":
		return l.ChargeAccrued(s, d.lien)
	case "settle":
		return l.Settle(s, Settlement{d.lien, d.total, d.yes})
	case "amend":
		return l.Amend(s, d.lien, d.total)
	case "refund":
		return l.Refund(s, Refund{Lien: d.lien, Amount: d.amount, Effective: d.when})
	case "correct":
		return l.Correct(s, Refund{Lien: d.lien, Amount: d.amount, Effective: d.when})
	case "move":
		return l.Move(s, d.chains...)
	case "close":
		_, err = l.ClosePeriod(s, d.name, d.when)
	case "meter":
		l.Meter(d.at, []Sample{d.sample})
	}
	return r, err
}
