package accounting

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Credits is an amount of money in micro-credits.
type Credits int64

// One is one credit.
const One Credits = 1_000_000

// Bounds of amounts: one amount is exact as a JSON number, and the total ever granted or owed fits
// an int64 with room for one more amount, so that no sum of parts overflows.
const (
	MaxAmount Credits = 1 << 53
	maxTotal  Credits = 1 << 62
)

// String formats credits with six decimals, as a plain decimal number.
func (c Credits) String() string {
	sign, u := "", uint64(c)
	if c < 0 {
		sign, u = "-", -uint64(c)
	}
	return fmt.Sprintf("%s%d.%06d", sign, u/uint64(One), u%uint64(One))
}

// Short formats credits for display: with two decimals, or as many as necessary.
func (c Credits) Short() string {
	text := c.String()
	for text[len(text)-1] == '0' && text[len(text)-3] != '.' {
		text = text[:len(text)-1]
	}
	return text
}

// ParseCredits reads a decimal number of credits with at most six decimals. A value above MaxAmount
// is ErrAmount.
func ParseCredits(text string) (Credits, error) {
	digits, negative := strings.CutPrefix(text, "-")
	whole, part, point := strings.Cut(digits, ".")
	if whole == "" || point && part == "" || len(part) > 6 || strings.ContainsAny(whole+part, "+-_") {
		return 0, fmt.Errorf("%w: %q is not a number of credits with at most six decimals", ErrAmount, text)
	}
	n, err := strconv.ParseInt(whole+(part + "000000")[:6], 10, 64)
	if err != nil || n > int64(MaxAmount) {
		return 0, fmt.Errorf("%w: %q is not a number of credits up to %s", ErrAmount, text, MaxAmount)
	}
	if negative {
		n = -n
	}
	return Credits(n), nil
}

// msPerHour converts GPU-milliseconds to GPU-hours.
const msPerHour = 3_600_000

// Cost returns the cost of GPU-milliseconds at a price per GPU-hour, rounded down in the customer's
// favour. The product is 128 bits wide; a cost that does not fit is the largest amount. Negative
// arguments cost nothing. O(1).
func Cost(price Credits, gpuMS int64) Credits {
	if price <= 0 || gpuMS <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(price), uint64(gpuMS))
	if hi >= msPerHour {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, msPerHour)
	return Credits(min(q, math.MaxInt64))
}

// permille returns a share of an amount, rounded down.
func permille(c Credits, share int64) Credits {
	hi, lo := bits.Mul64(uint64(c), uint64(share))
	q, _ := bits.Div64(hi, lo, 1000)
	return Credits(q)
}

// millis multiplies GPUs by milliseconds, saturating.
func millis(gpus, ms int64) int64 {
	hi, lo := bits.Mul64(uint64(gpus), uint64(max(ms, 0)))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// usable reports whether an amount is valid for a grant, a lien or a refund.
func usable(c Credits) bool { return c > 0 && c <= MaxAmount }
