package cluster

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is an amount of memory or storage.
type Bytes int64

// Binary multiples.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// ErrBadSize is returned for a word that is not an amount of memory.
var ErrBadSize = errors.New("not a size")

// ParseBytes reads a size as sbatch does: a number with an optional suffix K, M,
// G or T (binary multiples; "KiB", "KB" and lower case mean the same). A number
// without a suffix counts the given unit.
func ParseBytes(word string, unit Bytes) (Bytes, error) {
	digits := strings.TrimRight(word, "KMGTPBkmgtpbi")
	suffix := strings.ToUpper(word[len(digits):])
	switch suffix {
	case "":
	case "B":
		unit = 1
	case "K", "KB", "KIB":
		unit = KiB
	case "M", "MB", "MIB":
		unit = MiB
	case "G", "GB", "GIB":
		unit = GiB
	case "T", "TB", "TIB":
		unit = TiB
	default:
		return 0, fmt.Errorf("%w: %q (want a number with K, M, G or T, such as 16G)", ErrBadSize, word)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return 0, fmt.Errorf("%w: %q (want a number with K, M, G or T, such as 16G)", ErrBadSize, word)
	}
	return Bytes(n) * unit, nil
}

// String formats the size with the largest suffix that divides it.
func (b Bytes) String() string {
	for _, u := range [...]struct {
		size Bytes
		mark string
	}{{TiB, "T"}, {GiB, "G"}, {MiB, "M"}, {KiB, "K"}} {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.mark
		}
	}
	return strconv.FormatInt(int64(b), 10)
}
