package journalcheck

import "fmt"

// Total returns the sum of all book accounts: 0, unless an entry is no movement.
func (b *Book) Total() (sum int64) {
	for _, x := range b.sums {
		sum += x
	}
	return sum
}

// RollUp returns the sums of each payer with all payers below it; parents maps a payer to the one
// above. O(payers × depth).
func (b *Book) RollUp(parents map[string]string) map[string]PayerSums {
	total := map[string]PayerSums{}
	for name, s := range b.Payers {
		for up, depth := name, 0; up != "" && depth < 64; up, depth = parents[up], depth+1 {
			t := total[up]
			total[up] = PayerSums{t.Held + s.Held, t.Spent + s.Spent, t.Debt + s.Debt}
		}
	}
	return total
}

// Changes counts grants and refunds by amount; entries with one key count once. It needs a whole
// journal.
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

// Chains compares the payers above each payer in the entries with a tree of accounts that never
// changed. It needs a whole journal.
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

// Priced requires all metered time to be charged at a price. It needs a whole journal.
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

// SetsAside returns the attempt that an entry reserves credits for, the amount, and the payer with
// all payers above, the payer first; ok is false for other entries.
func (e *Entry) SetsAside() (of Attempt, amount int64, chain []string, ok bool) {
	return e.of, e.amount, e.cause.chain, e.kind == setAside
}

// LostUnder returns the attempt that had reserved what an entry expires or voids, and the amount;
// ok is false for other entries.
func (e *Entry) LostUnder() (of Attempt, amount int64, ok bool) {
	return e.of, e.amount, (e.kind == expired || e.kind == taken) && e.of.Job != 0
}

// Millis returns the GPU-milliseconds of the attempt's last charge.
func (b *Bill) Millis() (sum int64) {
	for _, s := range b.stretches {
		sum += s.millis
	}
	return sum
}

// Due returns the amount of the first GPU-milliseconds of the attempt, at the prices of their time;
// at the lowest quoted price if nothing was charged.
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

// due returns the amount of GPU-milliseconds of a stretch, with several types each by itself.
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
