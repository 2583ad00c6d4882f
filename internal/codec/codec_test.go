package codec

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

type inner struct {
	Word  string
	Count int32
}

type old struct {
	ID    uint64
	Inner inner
	Names []string
}

// newer is the record of old with fields appended by a later version.
type newer struct {
	old
	Note  string
	More  *inner
	Extra []inner
}

func innerFields(c *Coder, x *inner) {
	String(c, &x.Word)
	Int(c, &x.Count)
}

func innerRecord(c *Coder, x *inner) { Record(c, x, innerFields) }

func oldFields(c *Coder, x *old) {
	Uint(c, &x.ID)
	innerRecord(c, &x.Inner)
	List(c, &x.Names, String)
}

func newerFields(c *Coder, x *newer) {
	oldFields(c, &x.old)
	if c.Added() {
		String(c, &x.Note)
		Optional(c, &x.More, innerFields)
		List(c, &x.Extra, innerRecord)
	}
}

func write[T any](v T, fields func(*Coder, *T)) []byte {
	w := Writer(nil)
	Record(&w, &v, fields)
	return w.Written()
}

func read[T any](data []byte, fields func(*Coder, *T)) (T, error) {
	var v T
	r := Reader(data)
	Record(&r, &v, fields)
	return v, r.Err()
}

var before = old{ID: 7, Inner: inner{"w", -3}, Names: []string{"a", strings.Repeat("b", 300)}}

func TestRecordsGrow(t *testing.T) {
	after := newer{old: before, Note: "n", More: &inner{"x", 1}, Extra: []inner{{"y", 2}}}
	got, err := read(write(before, oldFields), newerFields)
	if err != nil || !reflect.DeepEqual(got, newer{old: before}) {
		t.Errorf("an older record reads as %+v, %v", got, err)
	}
	back, err := read(write(after, newerFields), oldFields)
	if err != nil || !reflect.DeepEqual(back, before) {
		t.Errorf("a newer record reads as %+v, %v", back, err)
	}
	same, err := read(write(after, newerFields), newerFields)
	if err != nil || !reflect.DeepEqual(same, after) {
		t.Errorf("the same version reads as %+v, %v", same, err)
	}
	// Inside a list the next element must begin where the record ends.
	w := Writer(nil)
	list := []newer{after, {old: before}, after}
	List(&w, &list, func(c *Coder, x *newer) { Record(c, x, newerFields) })
	r := Reader(w.Written())
	var olds []old
	List(&r, &olds, func(c *Coder, x *old) { Record(c, x, oldFields) })
	if r.Err() != nil || !reflect.DeepEqual(olds, []old{before, before, before}) {
		t.Errorf("a list of newer records reads as %+v, %v", olds, r.Err())
	}
}

func TestEveryCutIsAnError(t *testing.T) {
	data := write(before, oldFields)
	for i := range data {
		if _, err := read(data[:i], oldFields); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d of %d bytes: %v", i, len(data), err)
		}
	}
	if _, err := read(append(data, 0), oldFields); !errors.Is(err, ErrMalformed) {
		t.Errorf("a byte too many: %v", err)
	}
	// A record may end only at the end of a version's fields.
	for _, short := range []string{"\x00", "\x01\x07", "\x03\x07\x01\x00"} {
		if _, err := read([]byte(short), oldFields); !errors.Is(err, ErrMalformed) {
			t.Errorf("%x: %v", short, err)
		}
	}
}

func TestHostileNumbers(t *testing.T) {
	check := func(name, data string, pass func(*Coder)) {
		t.Helper()
		r := Reader([]byte(data))
		pass(&r)
		if !errors.Is(r.Err(), ErrMalformed) {
			t.Errorf("%s: %v", name, r.Err())
		}
	}
	var u8 uint8
	var i32 int32
	var yes bool
	var text string
	var list []string
	check("too large for 8 bits", "\x80\x02", func(c *Coder) { Uint(c, &u8) })
	check("too large for 32 bits", "\x80\x80\x80\x80\x80\x01", func(c *Coder) { Int(c, &i32) })
	check("longer than needed", "\x80\x00", func(c *Coder) { Uint(c, &u8) })
	check("endless", strings.Repeat("\xff", 20), func(c *Coder) { Uint(c, &u8) })
	check("neither true nor false", "\x02", func(c *Coder) { Bool(c, &yes) })
	check("string beyond the end", "\xff\xff\xff\xff\x0fab", func(c *Coder) { String(c, &text) })
	check("list beyond the end", "\xff\xff\xff\xff\x0fab", func(c *Coder) { List(c, &list, String) })
	check("short array", "ab", func(c *Coder) { Fixed(c, make([]byte, 3)) })
	if u8 != 0 || i32 != 0 || yes || text != "" || list != nil {
		t.Error("an error left a value behind")
	}
}

func TestExtremes(t *testing.T) {
	for _, want := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		w := Writer(nil)
		Int(&w, &want)
		u := uint64(want)
		Uint(&w, &u)
		r := Reader(w.Written())
		var got int64
		var gotU uint64
		Int(&r, &got)
		Uint(&r, &gotU)
		if r.Err() != nil || got != want || gotU != u {
			t.Errorf("%d came back as %d, %d, %v", want, got, gotU, r.Err())
		}
	}
}

func TestEqualStringsShareMemory(t *testing.T) {
	list := make([]string, 600)
	for i := range list {
		list[i] = []string{"physics", "chemistry", ""}[i%3]
	}
	w := Writer(nil)
	List(&w, &list, String)
	allocs := testing.AllocsPerRun(10, func() {
		r := Reader(w.Written())
		var got []string
		if List(&r, &got, String); !reflect.DeepEqual(got, list) {
			t.Fatal("the list came back changed")
		}
	})
	if allocs > 30 {
		t.Errorf("%v allocations for 600 strings of 3 kinds", allocs)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(write(newer{old: before, Note: "n", More: &inner{"x", 1}}, newerFields))
	f.Add(write(before, oldFields))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := read(data, newerFields)
		if err != nil {
			return
		}
		again, err := read(write(v, newerFields), newerFields)
		if err != nil || !reflect.DeepEqual(v, again) {
			t.Fatalf("%+v came back as %+v, %v", v, again, err)
		}
		if o, err := read(data, oldFields); err != nil || !reflect.DeepEqual(o, v.old) {
			t.Fatalf("read as the older version: %+v, %v", o, err)
		}
		if bytes.Equal(data, write(v.old, oldFields)) && v.Note != "" {
			t.Fatal("a field came from nowhere")
		}
	})
}
