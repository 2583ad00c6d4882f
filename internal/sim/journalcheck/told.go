package journalcheck

import "fmt"

// Total is what all book accounts have together: 0, unless an entry is no movement.
func (b *Book) Total() (sum int64) {
	for _, x := range b.sums {
		sum += x
	}
	return sum
}

// RollUp is what each payer has with all below it, where parents says who is above whom.
// O(payers × depth).
func (b *Book) RollUp(parents map[string]string) map[string]Share {
	total := map[string]Share{}
	for name, s := range b.Shares {
		for up, depth := name, 0; up != "" && depth < 64; up, depth = parents[up], depth+1 {
			t := total[up]
			total[up] = Share{t.Held + s.Held, t.Spent + s.Spent, t.Debt + s.Debt}
		}
	}
	return total
}

// Changes counts grants and refunds by amount, each as one whose entries have one key. Of
// a journal that was read whole.
func (b *Book) Changes() map[int64]int {
	byKey := map[string]int64{} // a refund may go to several buckets
	for _, e := range b.entries {
		if e.kind == granted || e.kind == refunded {
			byKey[e.key] += e.amount
		}
	}
	booked := map[int64]int{}
	for _, amount := range byKey {
		booked[amount]++
	}
	return booked
}

// Chains compares who payers said were above them with a tree of accounts in which nobody
// moved. Of a journal that was read whole.
func (b *Book) Chains(parents map[string]string) (found []string) {
	for _, e := range b.entries {
		for i, name := range e.cause.chain {
			above := ""
			if i+1 < len(e.cause.chain) {
				above = e.cause.chain[i+1]
			}
			if is, known := parents[name]; known && is != above {
				found = append(found, fmt.Sprintf("entry %d says that %s is below %q, it is below %q", e.seq, name, above, is))
			}
		}
	}
	return found
}

// Priced wants all that was counted to be charged at a price. Of a journal that was read
// whole.
func (b *Book) Priced(price int64) (found []string) {
	for _, e := range b.entries {
		for _, s := range e.charge.stretches {
			for _, p := range s.prices {
				if p != price {
					found = append(found, fmt.Sprintf("entry %d charges %d a GPU-hour, and the price is %d", e.seq, p, price))
				}
			}
		}
	}
	return found
}

// SetsAside is the attempt that an entry sets so much aside for, and who pays it with all
// above them, the payer first; ok is false of other entries.
func (e *Entry) SetsAside() (of Attempt, amount int64, chain []string, ok bool) {
	return e.of, e.amount, e.cause.chain, e.kind == setAside
}

// LostUnder is the attempt that had so much set aside of what an entry lets expire, or voids;
// ok is false of other entries.
func (e *Entry) LostUnder() (of Attempt, amount int64, ok bool) {
	return e.of, e.amount, (e.kind == expired || e.kind == taken) && e.of.Job != 0
}

// Millis is the GPU-milliseconds that the attempt was charged for last.
func (b *Bill) Millis() (sum int64) {
	for _, s := range b.stretches {
		sum += s.millis
	}
	return sum
}

// Due is what the first so many GPU-milliseconds of the attempt come to, at the prices of
// their time; of one that was charged nothing, at the lowest of its quote.
func (b *Bill) Due(millis int64) (due int64) {
	if len(b.stretches) == 0 {
		if len(b.rates) == 0 {
			return 0
		}
		return Cost(quotedFor(b.rates, ""), millis)
	}
	for i, s := range b.stretches {
		part := min(s.millis, millis)
		if i+1 == len(b.stretches) {
			part = millis
		}
		due, millis = due+s.due(part), millis-part
	}
	return due
}

// due is what GPU-milliseconds of a stretch come to: of those of several types each type's
// by itself.
func (s *stretch) due(millis int64) (due int64) {
	all := int64(0)
	for _, n := range s.gpus {
		all += n
	}
	for n, price := range s.prices {
		part := millis
		if len(s.prices) > 1 {
			part = millis / all * s.gpus[n]
		}
		due += Cost(price, part)
	}
	return due
}
