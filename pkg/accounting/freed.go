package accounting

// Freed names where funds became available: credits in the buckets of an account, or headroom in
// its budget, or repaid debts. Without a name it may be anywhere: a price changed.
type Freed struct {
	Node    PayerID
	Credits bool
}

// Watch makes the ledger record where funds become available. It is not part of the encoding.
func (l *Ledger) Watch(on bool) {
	if l.watched = on; !on {
		l.freed = nil
	}
}

// Freed returns where funds became available since the last call, in order, possibly with
// duplicates.
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
