package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Amounts of a currency are kept in millionths of it.
const (
	OneUnit  = 1_000_000
	MaxMoney = 1_000_000_000_000 * OneUnit
)

// ErrMoney is wrapped by every error of [ParseMoney].
var ErrMoney = errors.New("invalid amount")

// ParseMoney reads a decimal amount of a currency, at most six decimals and [MaxMoney], into millionths.
func ParseMoney(text string) (int64, error) {
	whole, part, point := strings.Cut(text, ".")
	if whole == "" || point && part == "" || len(part) > 6 || strings.Trim(whole+part, "0123456789") != "" {
		return 0, fmt.Errorf("%w: %q is not a decimal number with at most six decimals, such as 12.50", ErrMoney, Sanitize(text, maxName))
	}
	n, err := strconv.ParseInt(whole+(part + "000000")[:6], 10, 64)
	if err != nil || n > MaxMoney {
		return 0, fmt.Errorf("%w: %s is above %d", ErrMoney, Sanitize(text, maxName), int64(MaxMoney/OneUnit))
	}
	return n, nil
}

// FormatMoney writes an amount in millionths as [ParseMoney] reads it, with at least two decimals.
func FormatMoney(n int64) string {
	sign, u := "", uint64(n)
	if n < 0 {
		sign, u = "-", -u
	}
	text := fmt.Sprintf("%s%d.%06d", sign, u/OneUnit, u%OneUnit)
	return text[:len(text)-4] + strings.TrimRight(text[len(text)-4:], "0")
}
