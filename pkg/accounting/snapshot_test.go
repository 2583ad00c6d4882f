package accounting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// encoded is a ledger in one piece: each chunk with its length before it.
func encoded(t testing.TB, l *Ledger) []byte {
	t.Helper()
	var all []byte
	err := l.Encode(func(chunk []byte) error {
		if len(chunk) > maxChunk {
			t.Errorf("a chunk of %d bytes", len(chunk))
		}
		all = append(binary.BigEndian.AppendUint32(all, uint32(len(chunk))), chunk...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func decoded(data []byte) (*Ledger, error) {
	var d Decoder
	for len(data) >= 4 {
		n := int(binary.BigEndian.Uint32(data))
		if n > len(data)-4 {
			return nil, ErrDamaged
		}
		if err := d.Add(data[4 : 4+n]); err != nil {
			return nil, err
		}
		data = data[4+n:]
	}
	return d.Ledger()
}

// lived is a game after a seeded sequence.
func lived(t testing.TB, seed uint64, steps int) *game {
	g := newGame(t, seeded(seed))
	for range steps {
		g.step()
	}
	return g
}

// TestRestored checks that a ledger and what is decoded from its encoding are the same
// to everything that comes later, entry by entry.
func TestRestored(t *testing.T) {
	for seed := range uint64(32) {
		g := lived(t, seed, 60)
		l := g.l
		data := encoded(t, l)
		again, err := decoded(data)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !bytes.Equal(encoded(t, again), data) {
			t.Fatalf("seed %d: a restored ledger is encoded otherwise", seed)
		}
		for range 40 {
			d := g.next()
			r1, err1 := d.on(l)
			r2, err2 := d.on(again)
			if !reflect.DeepEqual(r1, r2) || fmt.Sprint(err1) != fmt.Sprint(err2) || !reflect.DeepEqual(l.Drain(), again.Drain()) || l.Digest() != again.Digest() {
				t.Fatalf("seed %d: %+v: %+v, %v, restored %+v, %v", seed, d, r1, err1, r2, err2)
			}
		}
	}
}

func TestCloneStays(t *testing.T) {
	g := lived(t, 1, 60)
	c, before := g.l.Clone(), encoded(t, g.l)
	for range 60 {
		g.step()
	}
	if !bytes.Equal(encoded(t, c), before) || c.Check() != nil {
		t.Error("a clone changed with its origin")
	}
}

// TestDamaged flips every byte of an encoded ledger in turn.
func TestDamaged(t *testing.T) {
	data := encoded(t, lived(t, 5, 40).l)
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 0x41
		l, err := decoded(bad)
		if err == nil {
			t.Fatalf("byte %d was changed and the ledger read: %v", i, l.now)
		} else if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	if _, err := decoded(data[:len(data)-3]); !errors.Is(err, ErrDamaged) {
		t.Errorf("without its end: %v", err)
	}
	if _, err := decoded(nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("of nothing: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(encoded(f, lived(f, seed, 10+20*int(seed)).l))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := decoded(data)
		if err != nil {
			return
		}
		again, err := decoded(encoded(t, l))
		if err != nil || again.Digest() != l.Digest() {
			t.Fatalf("read, written and read again: %v", err)
		}
		g := newGame(t, seeded(1))
		g.l = l
		for range 30 {
			d := g.next()
			d.on(l)
		}
	})
}

func FuzzReadRow(f *testing.F) {
	f.Add((&Entry{Seq: 7, At: base, Kind: Captured, Debit: heldFrom(1), Credit: BookAccount{Kind: Revenue}, Amount: 5, Node: "o/p", Lien: LienID{4, 1}, Late: true, Key: "k"}).AppendRow(nil))
	f.Fuzz(func(t *testing.T, row []byte) {
		e, err := ReadRow(row)
		if err == nil && !bytes.Equal(e.AppendRow(nil), row) {
			t.Errorf("%x reads as %+v", row, e)
		}
	})
}
