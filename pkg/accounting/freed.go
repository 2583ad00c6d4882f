package accounting

// Freed is where something became free: credits in the buckets of an account, or room
// under its budget or from its debts. Without a name it may be anywhere: a price began.
type Freed struct {
	Node    PayerID
	Credits bool
}

// Watch has the ledger note what becomes free, or no longer. It is no part of what is
// encoded.
func (l *Ledger) Watch(on bool) {
	if l.watched = on; !on {
		l.freed = nil
	}
}

// Freed hands out what became free since the last call, in the order that it did, some of
// it maybe twice.
func (l *Ledger) Freed() []Freed {
	f := l.freed
	l.freed = nil
	return f
}

func (l *Ledger) free(f Freed) {
	if n := len(l.freed); l.watched && (n == 0 || l.freed[n-1] != f) {
		l.freed = append(l.freed, f)
	}
}
