package accounting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// encoded returns a ledger in one piece: each chunk with its length before it.
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

// lived returns a game after a seeded sequence.
func lived(t testing.TB, seed uint64, steps int) *game {
	g := newGame(t, seeded(seed))
	for range steps {
		g.step()
	}
	return g
}

// indexes are the lookup structures of a ledger, which are not encoded.
func indexes(l *Ledger) string {
	var out strings.Builder
	for k := range l.due.All() {
		fmt.Fprintln(&out, "due", k)
	}
	for k := range l.spend.All() {
		fmt.Fprintln(&out, "spend", k)
	}
	for k := range l.onParts.All() {
		fmt.Fprintln(&out, "parts", k)
	}
	for k := range l.debtors.All() {
		fmt.Fprintln(&out, "debtor", k)
	}
	for k := range l.ended.All() {
		fmt.Fprintln(&out, "ended", k)
	}
	for k := range l.aging.All() {
		fmt.Fprintln(&out, "key", k)
	}
	for id, b := range l.buckets.All() {
		fmt.Fprintln(&out, "bucket", id, b.usable, b.listed)
	}
	fmt.Fprintln(&out, l.today, l.month, l.form)
	return out.String()
}

// TestRestored checks that a ledger and its decoded encoding react in the same way to all later
// commands, entry by entry.
func TestRestored(t *testing.T) {
	for seed := range uint64(64) {
		g := lived(t, seed, 20)
		l := g.l
		l.Watch(true)
		again := l
		for range 80 {
			if again == l || g.draws(4) == 0 {
				data := encoded(t, again)
				again = mustDecode(t, data)
				again.Watch(true)
				if got, want := indexes(again), indexes(l); got != want || !bytes.Equal(encoded(t, again), data) {
					t.Fatalf("seed %d: a restored ledger differs:\n%s", seed, differ(got, want))
				}
			}
			d := g.next()
			r1, err1 := d.on(l)
			r2, err2 := d.on(again)
			if !reflect.DeepEqual(r1, r2) || fmt.Sprint(err1) != fmt.Sprint(err2) || !reflect.DeepEqual(l.Drain(), again.Drain()) ||
				!reflect.DeepEqual(l.Freed(), again.Freed()) || l.Digest() != again.Digest() {
				t.Fatalf("seed %d: %+v: %+v, %v, restored %+v, %v", seed, d, r1, err1, r2, err2)
			}
		}
	}
}

// TestRestoredBehind restores a ledger after each command while more is due than one command
// processes: buckets that start and expire, and prices among and behind them. The restored ledger
// continues as the original.
func TestRestoredBehind(t *testing.T) {
	l := New()
	s := Stamp{At: base, Key: "k", Natural: true}
	for k := range int64(3000) {
		g := Grant{Owner: PayerPath{PayerID(fmt.Sprint("o", k%7))}, Class: Purchase, Amount: One, Expires: base.Add(time.Duration(2+k) * time.Second)}
		if k%3 == 0 {
			g.Effective = base.Add(time.Second)
		}
		_, err := l.Grant(s, g)
		for _, at := range []cluster.Instant{g.Expires, g.Expires + 1} {
			_, bad := l.SetPrice(s, Rate{"H100", One}, at)
			err = errors.Join(err, bad)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	again, behind := l.Clone(), 0
	for ; l.NextDue() != cluster.Never; behind++ {
		at := base.Add(24 * time.Hour)
		l.Advance(at)
		again.Advance(at)
		if l.Digest() != again.Digest() || l.NextDue() != again.NextDue() {
			t.Fatalf("after %d commands %s is due next, of what was restored %s", behind+1, l.NextDue().Time(), again.NextDue().Time())
		}
		again = mustDecode(t, encoded(t, again))
		if got, want := indexes(again), indexes(l); got != want || !bytes.Equal(encoded(t, again), encoded(t, l)) {
			t.Fatalf("after %d commands a restored ledger differs:\n%s", behind+1, differ(got, want))
		}
	}
	if behind < 5 {
		t.Fatalf("all was done after %d commands", behind)
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

// TestOtherForms checks that a ledger and an entry of a newer form are refused as such, and so is
// data of a development version before form 1.
func TestOtherForms(t *testing.T) {
	l := New()
	l.SetFormat(Form + 1)
	if _, err := l.Grant(Stamp{At: base, Key: "k"}, Grant{Owner: chainOf("o"), Class: Purchase, Amount: One}); err != nil {
		t.Fatal(err)
	}
	e := l.Drain()[0]
	row := e.AppendRow(nil)
	if _, err := ReadRow(row); !errors.Is(err, ErrNewer) {
		t.Errorf("an entry of form %d: %v", e.Form, err)
	}
	if _, err := decoded(encoded(t, l)); !errors.Is(err, ErrNewer) {
		t.Errorf("a ledger that writes form %d: %v", e.Form, err)
	}
	chunk := encoded(t, New())
	for form := range byte(6) {
		chunk[4], row[2*len(e.Hash)] = form+1, form+1
		if _, err := decoded(chunk); !errors.Is(err, codec.ErrEarlier) {
			t.Errorf("a ledger of the earlier form %d: %v", form+1, err)
		}
		if _, err := ReadRow(row); !errors.Is(err, codec.ErrEarlier) {
			t.Errorf("an entry of the earlier form %d: %v", form+1, err)
		}
	}
}
