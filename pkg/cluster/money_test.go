package cluster

import (
	"errors"
	"math/rand/v2"
	"testing"
)

func TestMoneyIsReadAsWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := r.Int64N(MaxMoney+1) >> r.IntN(60)
		if got, err := ParseMoney(FormatMoney(n)); err != nil || got != n {
			t.Fatalf("%d was written %q and read %d, %v", n, FormatMoney(n), got, err)
		}
	}
	for n, want := range map[int64]string{0: "0.00", 1: "0.000001", 12_500_000: "12.50", MaxMoney: "1000000000000.00", -1_234_567: "-1.234567"} {
		if got := FormatMoney(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for _, text := range []string{"", ".", "1.", ".5", "-1", "+1", "1e3", "1_000", "0x1", "1.0000001", "1000000000000.000001", "99999999999999999999", "1 ", "1,5", "NaN"} {
		if n, err := ParseMoney(text); !errors.Is(err, ErrMoney) {
			t.Errorf("%q is %d, %v", text, n, err)
		}
	}
}
