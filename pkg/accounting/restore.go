package accounting

import (
	"fmt"
	"math"

	"github.com/greylag/greylag/internal/codec"
)

// Decoder takes the chunks of an encoded ledger, in their order. The zero Decoder is ready to use.
type Decoder struct {
	l      *Ledger
	table  byte
	rooted bool // the accounts form a tree
	err    error
}

// Add takes the next chunk, which may be reused afterwards. Malformed input gives an error that
// wraps ErrDamaged, ErrNewer or codec.ErrEarlier, never a panic, and memory in proportion to the
// input. After an error it takes nothing more.
func (d *Decoder) Add(chunk []byte) error {
	if d.err == nil {
		d.err = d.add(chunk)
	}
	return d.err
}

// Ledger returns the decoded ledger, once the last chunk was added and the digest matches. Check
// verifies that the sums agree.
func (d *Decoder) Ledger() (*Ledger, error) {
	switch {
	case d.err != nil:
		return nil, d.err
	case d.table != tableEnd:
		return nil, fmt.Errorf("%w: it ends too early", ErrDamaged)
	}
	return d.l, nil
}

func (d *Decoder) add(chunk []byte) error {
	if len(chunk) < 3 || len(chunk) > maxChunk {
		return fmt.Errorf("%w: a chunk of %d bytes", ErrDamaged, len(chunk))
	}
	if _, err := readForm(chunk[0], chunkForm); err != nil {
		return err
	}
	if chunk[1] < d.table || chunk[1] > tableEnd || d.table == tableEnd || d.table == 0 && chunk[1] != tableMeta {
		return fmt.Errorf("%w: table %d after %d", ErrDamaged, chunk[1], d.table)
	}
	if d.l == nil {
		d.l = New()
	} else if chunk[1] == tableMeta {
		return fmt.Errorf("%w: it begins twice", ErrDamaged)
	}
	if d.table = chunk[1]; d.table > tableNodes && !d.rooted {
		d.rooted = true
		if err := d.l.rooted(); err != nil {
			return err
		}
	}
	c := codec.Reader(chunk[2:])
	for c.Remaining() > 0 && !c.Failed() {
		d.record(&c)
	}
	if err := c.Err(); err != nil {
		return fmt.Errorf("%w: table %d: %w", ErrDamaged, d.table, err)
	}
	if d.l.form > Form {
		return fmt.Errorf("%w: it writes entries in form %d", ErrNewer, d.l.form)
	}
	return nil
}

// record reads one record of the current table.
func (d *Decoder) record(c *codec.Coder) {
	l := d.l
	switch d.table {
	case tableMeta:
		codec.Record(c, l, metaFields)
		if l.now < 0 || l.now > latest || l.total < 0 || l.total > maxTotal || l.form == 0 {
			c.Fail("its time or its total is impossible")
		}
		l.today, l.month = Daily.start(l.now), Monthly.start(l.now)
	case tableNodes:
		x := keyed[PayerID, Payer]{}
		if codec.Record(c, &x, nodeRecord); !c.Failed() {
			l.restoreNode(c, x.key, x.value)
		}
	case tableBuckets:
		b := new(Bucket)
		if codec.Record(c, b, bucketRecord); !c.Failed() {
			l.restoreBucket(c, b)
		}
	case tableLiens:
		n := new(Lien)
		if codec.Record(c, n, lienFields); !c.Failed() {
			l.restoreLien(c, n)
		}
	case tablePrices:
		var x pricing
		if codec.Record(c, &x, priceRecord); !c.Failed() {
			accept(c, !l.prices.Has(x.key) && x.value >= 0 && x.value <= MaxAmount, "a price")
			l.putPrice(x.key, x.value)
			if from := -x.key.before; from > l.now || x.behind {
				l.due.Set(dueKey{from, 0}, none{})
			}
		}
	case tableCodes:
		var x keyed[string, int64]
		if codec.Record(c, &x, codeRecord); !c.Failed() {
			accept(c, !l.codes.Has(x.key) && x.value > 0, "a code")
			l.putCode(x.key, x.value)
		}
	case tableKeys:
		var x keyed[string, string]
		if codec.Record(c, &x, keyRecord); !c.Failed() {
			l.restoreKey(c, x.key, x.value)
		}
	case tableClosings:
		var x Closing
		if codec.Record(c, &x, closingFields); !c.Failed() {
			accept(c, !l.closes.Has(x.Name), "a period")
			l.putClosing(x)
		}
	case tableEnd:
		d.end(c)
	}
}

// accept refuses a record that could not have been written.
func accept(c *codec.Coder, possible bool, what string) {
	if !possible {
		c.Fail("%s that cannot be", what)
	}
}

func (l *Ledger) restoreNode(c *codec.Coder, id PayerID, n Payer) {
	accept(c, id != "" && len(id) <= maxNode && !l.nodes.Has(id) && n.Budget.Window <= Monthly && n.sound(id) == nil, "an account")
	if n.Owes > 0 {
		l.debtors.Set(id, none{})
	}
	l.putNode(id, &n)
}

func (l *Ledger) restoreBucket(c *codec.Coder, b *Bucket) {
	if accept(c, b.ID > 0 && b.ID <= l.bucket && !l.buckets.Has(b.ID) && len(b.Owner) == 1 && l.nodes.Has(b.Owner[0]) && b.sound() == nil, "a bucket"); c.Failed() {
		return
	}
	if b.Expires != 0 && !b.swept {
		l.due.Set(dueKey{b.Expires, b.ID}, none{})
	}
	if b.waits {
		l.due.Set(dueKey{b.Effective, b.ID}, none{})
	}
	l.putBucket(b)
}

func (l *Ledger) restoreLien(c *codec.Coder, n *Lien) {
	_, err := n.sound()
	possible := err == nil && n.State <= Unused && !l.liens.Has(n.ID) && len(n.Rates) > 0 && len(n.Chain) == 1 && l.nodes.Has(n.Chain[0])
	for i := range n.Segments {
		g := &n.Segments[i]
		possible = possible && g.GPUs > 0 && g.GPUs <= maxGPUs && g.Base >= 0 && g.Count >= 0 && g.Base <= math.MaxInt64-g.Count
		since := g.Since
		for _, p := range g.Past {
			possible = possible && p.Until > since && len(p.Shares) > 0
			since = p.Until
		}
	}
	for _, p := range n.Parts {
		b, found := l.buckets.Get(p.Bucket)
		possible = possible && (found || p.Bucket == 0)
		if found && b.Cutoff && p.Held > 0 {
			l.onParts.Set(partKey{b.ID, n.ID}, none{})
		}
	}
	if accept(c, possible, "a lien"); c.Failed() {
		return
	}
	if n.State != Open {
		l.ended.Set(n.endedKey(), none{})
	}
	l.putLien(n)
}

// rooted checks that the accounts form a tree. O(accounts).
func (l *Ledger) rooted() error {
	reached := map[PayerID]bool{} // false: on the current path
	for id := range l.nodes.All() {
		var way []PayerID
		for up := id; up != ""; {
			n, found := l.nodes.Get(up)
			done, met := reached[up]
			if !found || met && !done {
				return fmt.Errorf("%w: account %s is below what is not there, or itself", ErrDamaged, id)
			}
			if done {
				break
			}
			reached[up] = false
			way = append(way, up)
			up = n.Parent
		}
		for _, up := range way {
			reached[up] = true
		}
	}
	return nil
}

func (l *Ledger) restoreKey(c *codec.Coder, key, record string) {
	x, err := readOutcome(record)
	accept(c, err == nil && key != "" && len(key) <= MaxKey && !l.keys.Has(key), "a key")
	l.keys.Set(key, record)
	if !x.lasting {
		l.aging.Set(agingKey{x.at, key}, none{})
	}
	l.digest += hashKey(key, record)
}

// end compares the result with the written digest.
func (d *Decoder) end(c *codec.Coder) {
	var digest uint64
	if codec.Record(c, &digest, digestRecord); c.Failed() {
		return
	}
	if digest != d.l.Digest() {
		c.Fail("the ledger is not the one that was written")
	}
}
