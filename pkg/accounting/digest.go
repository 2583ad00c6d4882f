package accounting

import "math/bits"

// The digest is the sum of one hash for each record, so that a change costs two hashes
// whatever the size of the ledger, and the order of records does not matter. The hashes
// are of what the fields say, not of an encoding: they stay when an encoding changes.
// It tells replicas apart that differ by accident; against intent stands the journal's
// chain, whose head it covers.

// Odd constants with about as many ones as zeros, from wyhash by Wang Yi (public
// domain).
const (
	mix1 = 0xa0761d6478bd642f
	mix2 = 0xe7037ed1a0b428db
)

// hasher takes in numbers and texts one after the other.
type hasher uint64

// The kinds of records, which begin their hashes.
const (
	hashNode hasher = iota + 1
	hashBucket
	hashLien
	hashPrices
	hashCodes
	hashKeys
	hashClosing
	hashMeta
)

func (h hasher) word(x uint64) hasher {
	hi, lo := bits.Mul64(uint64(h)^mix1, x^mix2)
	return hasher(hi ^ lo)
}

func (h hasher) credits(all ...Credits) hasher {
	for _, c := range all {
		h = h.word(uint64(c))
	}
	return h
}

func (h hasher) flag(x bool) hasher {
	if x {
		return h.word(1)
	}
	return h.word(0)
}

func (h hasher) text(s string) hasher {
	h = h.word(uint64(len(s)))
	for ; len(s) >= 8; s = s[8:] {
		h = h.word(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
	}
	var last uint64
	for i := len(s) - 1; i >= 0; i-- {
		last = last<<8 | uint64(s[i])
	}
	return h.word(last)
}

func texts[T ~string](h hasher, all []T) hasher {
	h = h.word(uint64(len(all)))
	for _, s := range all {
		h = h.text(string(s))
	}
	return h
}

func (n *Payer) hash(id PayerID) uint64 {
	h := hashNode.text(string(id)).text(string(n.Parent)).flag(n.Budget.Hard).word(uint64(n.Budget.Window)).word(uint64(n.Start))
	return uint64(h.credits(n.Budget.Limit, n.Held, n.Spent, n.Debt, n.Day, n.Month, n.Owes, n.Own))
}

func (b *Bucket) hash() uint64 {
	if b.terms == 0 {
		b.terms = b.Grant.hash()
	}
	h := hashBucket.word(uint64(b.ID)).word(uint64(b.terms)).flag(b.Voided).flag(b.waits).flag(b.swept)
	return uint64(h.credits(b.Avail, b.Held, b.Spent, b.Expired, b.Void))
}

func (g *Grant) hash() hasher {
	h := texts(hashBucket, g.Owner).word(uint64(g.Class)).word(uint64(g.Effective)).word(uint64(g.Expires))
	h = h.word(uint64(g.Priority)).flag(g.Cutoff).text(g.Code).word(uint64(g.Redeems)).word(uint64(g.Scope.Permille))
	return texts(texts(texts(h, g.Scope.GPUTypes), g.Scope.Partitions), g.Scope.QOS).credits(g.Amount, g.Scope.PerJob)
}

func (n *Lien) hash() uint64 {
	if n.terms == 0 {
		n.terms = n.Claim.hash()
	}
	h := n.terms.word(uint64(n.State)).word(uint64(n.Since)).word(uint64(n.Ended)).flag(n.Unproven).flag(n.CutShort).credits(n.Amount, n.Adjusted, n.Day, n.Month).word(uint64(n.Start))
	h = h.word(uint64(len(n.Parts)))
	for i := range n.Parts {
		p := &n.Parts[i]
		h = h.word(uint64(p.Bucket)).credits(p.Held, p.Spent, p.Refunded)
	}
	h = h.word(uint64(len(n.Segments)))
	for i := range n.Segments {
		g := &n.Segments[i]
		h = h.text(g.GPUType).word(uint64(g.GPUs)).word(uint64(g.Price)).word(uint64(g.Since)).word(uint64(g.Base))
		h = h.word(uint64(g.Count)).word(g.Epoch).word(g.Sample).word(uint64(g.Seen)).word(uint64(g.Excess)).flag(g.Ended)
		for _, x := range g.Mix {
			h = h.text(x.Type).word(uint64(x.Count)).credits(x.Price)
		}
		for _, p := range g.Past {
			h = h.word(uint64(p.Until))
			for _, x := range p.Shares {
				h = h.text(x.Type).word(uint64(x.Count)).credits(x.Price)
			}
		}
	}
	return uint64(h)
}

// hash is of what never changes of a claim: not of its amount.
func (c *Claim) hash() hasher {
	h := texts(hashLien.word(uint64(c.ID.Job)).word(uint64(c.ID.Attempt)), c.Chain).text(c.Partition).text(c.QOS)
	for _, r := range c.Rates {
		h = h.text(r.GPUType).word(uint64(r.Price))
	}
	if h = h.flag(c.Floating); len(c.Partitions) > 0 {
		h = texts(h, c.Partitions)
	}
	return h
}

func hashPrice(k priceKey, price Credits) uint64 {
	return uint64(hashPrices.text(k.gpuType).word(uint64(k.before)).word(uint64(price)))
}

func hashCode(code string, redeemed int64) uint64 {
	return uint64(hashCodes.text(code).word(uint64(redeemed)))
}

func hashKey(key, record string) uint64 { return uint64(hashKeys.text(key).text(record)) }

func (c *Closing) hash() uint64 {
	return uint64(hashClosing.text(c.Name).word(uint64(c.End)).word(c.Seq).text(string(c.Head[:])))
}

// Digest is a fingerprint of all that an encoded ledger holds: equal ledgers have equal
// ones, ledgers that differ have different ones but for one chance in 2^64. O(1).
func (l *Ledger) Digest() uint64 {
	h := hashMeta.word(uint64(l.now)).word(l.seq).text(string(l.head[:])).word(uint64(l.closed))
	if l.floats != 0 { // of a ledger that was there before
		h = h.word(uint64(l.floats))
	}
	return l.digest + uint64(h.word(uint64(l.bucket)).word(uint64(l.total)))
}

// recount is the part of the digest that grows with the records, from scratch.
// O(records).
func (l *Ledger) recount() (sum uint64) {
	for id, n := range l.nodes.All() {
		sum += n.hash(id)
	}
	for _, b := range l.buckets.All() {
		sum += b.hash()
	}
	for _, n := range l.liens.All() {
		sum += n.hash()
	}
	for k, p := range l.prices.All() {
		sum += hashPrice(k, p)
	}
	for code, n := range l.codes.All() {
		sum += hashCode(code, n)
	}
	for key, record := range l.keys.All() {
		sum += hashKey(key, record)
	}
	for _, c := range l.closes.All() {
		sum += c.hash()
	}
	return sum
}
