package cluster

import (
	"errors"
	"testing"
	"time"
)

func TestParseLimit(t *testing.T) {
	for word, want := range map[string]time.Duration{
		"90": 90 * time.Minute, "1:30": 90 * time.Second, "2:00:00": 2 * time.Hour, "1-2": 26 * time.Hour,
		"1-2:03": 26*time.Hour + 3*time.Minute, "1-2:03:04": 26*time.Hour + 3*time.Minute + 4*time.Second,
		"unlimited": 0, "INFINITE": 0, "0": 0, "0:00": 0,
	} {
		if got, err := ParseLimit(word); err != nil || got != want {
			t.Errorf("%q is %s, %v, want %s", word, got, err, want)
		}
	}
	for _, word := range []string{"", "-", "1-", "-1", "+5", "1:2:3:4", "1-2:3:4:5", "5m", "1.5"} {
		if got, err := ParseLimit(word); !errors.Is(err, ErrBadTime) {
			t.Errorf("%q is %s, %v", word, got, err)
		}
	}
	for _, word := range []string{"99999999999", "36500-876000:52560000:3153600000", "36501-0"} {
		if got, err := ParseLimit(word); !errors.Is(err, ErrLongTime) {
			t.Errorf("%q is %s, %v", word, got, err)
		}
	}
}

func FuzzParseLimit(f *testing.F) {
	f.Add("1-2:03:04")
	f.Fuzz(func(t *testing.T, word string) {
		d, err := ParseLimit(word)
		if err != nil {
			return
		}
		if d < 0 || d > maxLimit {
			t.Fatalf("%q is %s", word, d)
		}
		if again, err := ParseLimit(FormatLimit(d)); err != nil || again != d {
			t.Fatalf("%q is %s, written %s, read as %s, %v", word, d, FormatLimit(d), again, err)
		}
	})
}

func TestParseBytes(t *testing.T) {
	for word, want := range map[string]Bytes{
		"5": 5 * MiB, "5B": 5, "5k": 5 * KiB, "5KB": 5 * KiB, "5KiB": 5 * KiB, "7G": 7 * GiB, "1t": TiB, "0": 0,
	} {
		if got, err := ParseBytes(word, MiB); err != nil || got != want {
			t.Errorf("%q is %d, %v, want %d", word, got, err, want)
		}
	}
	for _, word := range []string{"", "G", "-1G", "1I", "1BI", "1KK", "1P", "1.5G", "9999999999999999T", "16GiBB", " 1"} {
		if got, err := ParseBytes(word, MiB); !errors.Is(err, ErrBadSize) {
			t.Errorf("%q is %d, %v", word, got, err)
		}
	}
	for size, want := range map[Bytes]string{0: "0", 1023: "1023", KiB: "1K", 1536 * MiB: "1536M", 3 * TiB: "3T"} {
		if got := size.String(); got != want {
			t.Errorf("%d is written %s, want %s", int64(size), got, want)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	f.Add("16G")
	f.Fuzz(func(t *testing.T, word string) {
		b, err := ParseBytes(word, 1)
		if err != nil {
			return
		}
		if again, err := ParseBytes(b.String(), 1); b < 0 || err != nil || again != b {
			t.Fatalf("%q is %d, written %s, read as %d, %v", word, int64(b), b, int64(again), err)
		}
	})
}

func TestParseJobRef(t *testing.T) {
	for _, word := range []string{"1", "123_0", "123_2147483647"} {
		ref, err := ParseJobRef(word)
		if err != nil || ref.String() != word {
			t.Errorf("%q is %v, %v", word, ref, err)
		}
	}
	for _, word := range []string{"", "0", "-1", "_", "1_", "1_-1", "1_+1", "1_2147483648", "1_2_3", "x", "99999999999999999999"} {
		if ref, err := ParseJobRef(word); !errors.Is(err, ErrBadJobID) {
			t.Errorf("%q is %v, %v", word, ref, err)
		}
	}
}

func TestInstants(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	if got := InstantOf(now).Time(); !got.Equal(now) {
		t.Errorf("%s came back as %s", now, got)
	}
	if InstantOf(time.Time{}) != 0 || !Instant(0).Time().IsZero() {
		t.Error("the zero time is not the zero instant")
	}
	if Never.Add(time.Hour) != Never || Instant(5).Add(3).Sub(2) != 6 {
		t.Error("instants do not add up")
	}
}
