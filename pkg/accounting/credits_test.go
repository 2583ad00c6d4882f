package accounting

import (
	"math"
	"testing"
)

// TestCostIsWide computes a product of 3.2e22, which does not fit an int64.
func TestCostIsWide(t *testing.T) {
	if c := Cost(1_000_000_000, 32_000_000_000_000); c != 8_888_888_888_888_888 {
		t.Errorf("it costs %d", int64(c))
	}
	if c := Cost(math.MaxInt64, math.MaxInt64); c != math.MaxInt64 {
		t.Errorf("the largest product costs %d", int64(c))
	}
}

func FuzzParseCredits(f *testing.F) {
	for _, s := range []string{"0", "1.5", "-3.000001", "9007199254.740992", "1.", ".5", "1e3", "--1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCredits(text)
		if err != nil {
			return
		}
		if again, err := ParseCredits(c.String()); err != nil || again != c {
			t.Errorf("%q is %d, written %s, read %d, %v", text, int64(c), c, int64(again), err)
		}
	})
}

func TestShort(t *testing.T) {
	for c, want := range map[Credits]string{
		0: "0.00", 1: "0.000001", 10: "0.00001", 500_000: "0.50", 1_230_000: "1.23", 1_234_000: "1.234", -12 * One: "-12.00", 100 * One: "100.00", MaxAmount: "9007199254.740992",
	} {
		if got := c.Short(); got != want {
			t.Errorf("%d: %s, want %s", c, got, want)
		}
		if again, err := ParseCredits(c.Short()); err != nil || again != c {
			t.Errorf("%s is read as %s, %v", want, again, err)
		}
	}
}
