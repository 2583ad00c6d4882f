package accounting

import (
	"fmt"

	"github.com/greylag/greylag/internal/codec"
)

// An encoded ledger is a sequence of chunks, each
//
//	form, 1 byte | table, 1 byte | records, each a length and its fields
//
// with the tables in the order below, a table in as many chunks as it needs, and its
// records by key, so that equal ledgers give equal bytes. The last chunk is the digest.
const (
	chunkForm  = 1
	chunkBytes = 256 << 10 // a chunk ends with the record that exceeds this
	maxChunk   = 1 << 20
)

// The tables, in the order of their chunks.
const (
	tableMeta byte = iota + 1
	tableNodes
	tableBuckets
	tableLiens
	tablePrices
	tableCodes
	tableKeys
	tableClosings
	tableEnd
)

// keyed is a record with its key, as it is encoded.
type keyed[K, V any] struct {
	key   K
	value V
}

func metaFields(c *codec.Coder, l *Ledger) {
	codec.Int(c, &l.now)
	codec.Uint(c, &l.seq)
	codec.Fixed(c, l.head[:])
	codec.Int(c, &l.closed)
	codec.Uint(c, &l.bucket)
	codec.Int(c, &l.total)
	codec.Uint(c, &l.form)
}

func nodeRecord(c *codec.Coder, x *keyed[PayerID, Payer]) {
	nodeID(c, &x.key)
	codec.Record(c, &x.value, nodeFields)
}

func bucketRecord(c *codec.Coder, x *Bucket) {
	codec.Uint(c, &x.ID)
	codec.Record(c, x, bucketFields)
}

// pricing is a price as it is encoded.
type pricing struct {
	keyed[priceKey, Credits]
	behind bool // it has started and the sweep has not reached it; no other field records this
}

func priceRecord(c *codec.Coder, x *pricing) {
	codec.String(c, &x.key.gpuType)
	codec.Int(c, &x.key.before)
	codec.Int(c, &x.value)
	codec.Bool(c, &x.behind)
}

func codeRecord(c *codec.Coder, x *keyed[string, int64]) {
	codec.String(c, &x.key)
	codec.Int(c, &x.value)
}

func keyRecord(c *codec.Coder, x *keyed[string, string]) {
	codec.String(c, &x.key)
	codec.String(c, &x.value)
}

func digestRecord(c *codec.Coder, x *uint64) { codec.Uint(c, x) }

// chunks collects records and passes them on. After the first error it does nothing.
type chunks struct {
	emit  func([]byte) error
	coder codec.Coder
	err   error
}

// table begins the chunks of a table.
func (x *chunks) table(kind byte) {
	x.flush(kind)
	x.coder = codec.Writer(append(x.coder.Written()[:0], codec.FormByte(chunkForm), kind))
}

// flush passes on the collected records, if any, and continues with the same table.
func (x *chunks) flush(kind byte) {
	body := x.coder.Written()
	if len(body) > 2 && x.err == nil {
		if err := x.emit(body); err != nil {
			x.err = fmt.Errorf("write the ledger: %w", err)
		}
	}
	x.coder = codec.Writer(append(body[:0], codec.FormByte(chunkForm), kind))
}

func put[T any](x *chunks, kind byte, v *T, fields func(*codec.Coder, *T)) {
	codec.Record(&x.coder, v, fields)
	if len(x.coder.Written()) >= chunkBytes {
		x.flush(kind)
	}
}

// Encode passes the ledger to emit in chunks of at most 1 MiB, which are only valid during the
// call: equal ledgers give equal chunks. Entries that were not drained are not part of it. It stops
// at the first error of emit and returns it. On a clone it runs concurrently with the ledger's
// writer. O(ledger).
func (l *Ledger) Encode(emit func(chunk []byte) error) error {
	x := &chunks{emit: emit}
	x.table(tableMeta)
	put(x, tableMeta, l, metaFields)
	x.table(tableNodes)
	for id, n := range l.nodes.All() {
		put(x, tableNodes, &keyed[PayerID, Payer]{id, *n}, nodeRecord)
	}
	x.table(tableBuckets)
	for _, b := range l.buckets.All() {
		put(x, tableBuckets, b, bucketRecord)
	}
	x.table(tableLiens)
	for _, n := range l.liens.All() {
		put(x, tableLiens, n, lienFields)
	}
	x.table(tablePrices)
	for k, p := range l.prices.All() {
		from := -k.before
		behind := from <= l.now && l.due.Has(dueKey{from, 0})
		put(x, tablePrices, &pricing{keyed[priceKey, Credits]{k, p}, behind}, priceRecord)
	}
	x.table(tableCodes)
	for code, n := range l.codes.All() {
		put(x, tableCodes, &keyed[string, int64]{code, n}, codeRecord)
	}
	x.table(tableKeys)
	for key, record := range l.keys.All() {
		put(x, tableKeys, &keyed[string, string]{key, record}, keyRecord)
	}
	x.table(tableClosings)
	for _, c := range l.closes.All() {
		put(x, tableClosings, &c, closingFields)
	}
	x.table(tableEnd)
	digest := l.Digest()
	put(x, tableEnd, &digest, digestRecord)
	x.flush(tableEnd)
	return x.err
}
