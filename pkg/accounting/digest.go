package accounting

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// The digest is the sum of one hash per record, so that a change costs two hashes whatever the size
// of the ledger, and the order of records does not matter. Each hash is XXH64 of the field values,
// not of an encoding: it does not change with the encoding. It detects replicas that diverged by
// accident. The journal's chain, whose head it covers, detects tampering.

// hasher collects the input of a hash: numbers of eight bytes, and texts.
type hasher []byte

// hashBuffer is memory for the numbers and texts of most records.
type hashBuffer [384]byte

// of begins the hash of a record of a kind.
func (b *hashBuffer) of(kind uint64) hasher { return hasher(b[:0]).word(kind) }

func (h hasher) sum() uint64 { return xxhash.Sum64(h) }

// The kinds of records, which begin their hashes.
const (
	hashNode uint64 = iota + 1
	hashBucket
	hashLien
	hashPrices
	hashCodes
	hashKeys
	hashClosing
	hashMeta
	hashTerms
	hashClaim
)

func (h hasher) word(x uint64) hasher { return binary.LittleEndian.AppendUint64(h, x) }

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

func (h hasher) text(s string) hasher { return append(h.word(uint64(len(s))), s...) }

func texts[T ~string](h hasher, all []T) hasher {
	h = h.word(uint64(len(all)))
	for _, s := range all {
		h = h.text(string(s))
	}
	return h
}

func (n *Payer) hash(id PayerID) uint64 {
	var buf hashBuffer
	h := buf.of(hashNode).text(string(id)).text(string(n.Parent)).flag(n.Budget.Hard).word(uint64(n.Budget.Window)).word(uint64(n.Start))
	return h.credits(n.Budget.Limit, n.Held, n.Spent, n.Debt, n.Day, n.Month, n.Owes, n.Own).sum()
}

func (b *Bucket) hash() uint64 {
	if b.terms == 0 {
		b.terms = b.Grant.hash()
	}
	var buf hashBuffer
	h := buf.of(hashBucket).word(uint64(b.ID)).word(b.terms).flag(b.Voided).flag(b.waits).flag(b.swept)
	return h.credits(b.Avail, b.Held, b.Spent, b.Expired, b.Void).sum()
}

func (g *Grant) hash() uint64 {
	var buf hashBuffer
	h := texts(buf.of(hashTerms), g.Owner).word(uint64(g.Class)).word(uint64(g.Effective)).word(uint64(g.Expires))
	h = h.word(uint64(g.Priority)).flag(g.Cutoff).text(g.Code).word(uint64(g.MaxRedemptions)).word(uint64(g.Scope.Permille))
	return texts(texts(texts(h, g.Scope.GPUTypes), g.Scope.Partitions), g.Scope.QOS).credits(g.Amount, g.Scope.PerJob).sum()
}

func (n *Lien) hash() uint64 {
	if n.terms == 0 {
		n.terms = n.Claim.hash()
	}
	var buf hashBuffer
	h := buf.of(hashLien).word(n.terms).word(uint64(n.State)).word(uint64(n.Since)).word(uint64(n.Ended)).flag(n.Unproven).flag(n.CutShort).credits(n.Amount, n.Adjusted, n.Day, n.Month).word(uint64(n.Start))
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
		h = h.word(uint64(len(g.Mix)))
		for _, x := range g.Mix {
			h = h.text(x.Type).word(uint64(x.Count)).credits(x.Price)
		}
		h = h.word(uint64(len(g.Past)))
		for _, p := range g.Past {
			h = h.word(uint64(p.Until)).word(uint64(len(p.Shares)))
			for _, x := range p.Shares {
				h = h.text(x.Type).word(uint64(x.Count)).credits(x.Price)
			}
		}
	}
	return h.sum()
}

// hash covers the constant fields of a claim, so not its amount.
func (c *Claim) hash() uint64 {
	var buf hashBuffer
	h := texts(buf.of(hashClaim).word(uint64(c.ID.Job)).word(uint64(c.ID.Attempt)), c.Chain).text(c.Partition).text(c.QOS)
	h = h.word(uint64(len(c.Rates)))
	for _, r := range c.Rates {
		h = h.text(r.GPUType).word(uint64(r.Price))
	}
	return texts(h.flag(c.Floating), c.Partitions).sum()
}

func hashPrice(k priceKey, price Credits) uint64 {
	var buf hashBuffer
	return buf.of(hashPrices).text(k.gpuType).word(uint64(k.before)).word(uint64(price)).sum()
}

func hashCode(code string, redeemed int64) uint64 {
	var buf hashBuffer
	return buf.of(hashCodes).text(code).word(uint64(redeemed)).sum()
}

func hashKey(key, record string) uint64 {
	var buf hashBuffer
	return buf.of(hashKeys).text(key).text(record).sum()
}

func (c *Closing) hash() uint64 {
	var buf hashBuffer
	return buf.of(hashClosing).text(c.Name).word(uint64(c.End)).word(c.Seq).text(string(c.Head[:])).sum()
}

// Digest returns a fingerprint of all that an encoded ledger holds. Equal ledgers have equal
// digests; different ones differ with probability 1 - 2^-64. O(1).
func (l *Ledger) Digest() uint64 {
	var buf hashBuffer
	h := buf.of(hashMeta).word(uint64(l.now)).word(l.seq).text(string(l.head[:])).word(uint64(l.closed))
	return l.digest + h.word(uint64(l.bucket)).word(uint64(l.total)).word(uint64(l.form)).sum()
}
