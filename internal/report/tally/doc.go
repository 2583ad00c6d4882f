// Package tally adds up what jobs used, by half hours and by who they were for.
//
// It decides, from jobs alone, which half hours a job's resources count in, what of
// them was lost, how long it waited and what became of the promises made to it. What
// a job used counts in the half hours in which it ran, so that a day's sum is what the
// day's machines did; what is known only at the end (outcome, wait, loss, efficiency,
// promises) counts in the half hour in which it ended, so that a day that is over does
// not change any more. It never reads a clock, and the order in which jobs are added
// changes nothing.
//
// Half hours, since all but three time zones in use begin their days on one. Days of
// UTC were rejected: they cannot be put together to days of another zone.
package tally

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Slot is how long one slot is. Slots begin at its multiples since the Unix epoch.
const Slot = 30 * time.Minute

// SlotOf is the beginning of the slot that an instant lies in.
func SlotOf(at cluster.Instant) cluster.Instant { return at - at%cluster.Instant(Slot) }

// Grid divides time into cells: it tells when the one that an instant lies in begins
// and, exclusive, ends.
type Grid func(at cluster.Instant) (begin, end cluster.Instant)

// Slots is the grid of slots.
func Slots(at cluster.Instant) (begin, end cluster.Instant) {
	begin = SlotOf(at)
	return begin, begin + cluster.Instant(Slot)
}

// Cut is the grid of slots that are cut at bounds, which ascend. O(log bounds).
func Cut(bounds []cluster.Instant) Grid {
	return func(at cluster.Instant) (begin, end cluster.Instant) {
		begin, end = Slots(at)
		i, exact := slices.BinarySearch(bounds, at)
		if exact {
			i++
		}
		if i > 0 {
			begin = max(begin, bounds[i-1])
		}
		if i < len(bounds) {
			end = min(end, bounds[i])
		}
		return begin, end
	}
}

// Key is who and what a tally is about.
type Key struct {
	Account, User, Partition, QOS string
	GPUType                       string // "" for jobs without GPUs, and for those that never had one
}

// Compare orders keys by their fields.
func (k Key) Compare(o Key) int {
	return cmp.Or(
		strings.Compare(k.Account, o.Account), strings.Compare(k.User, o.User), strings.Compare(k.Partition, o.Partition),
		strings.Compare(k.QOS, o.QOS), strings.Compare(k.GPUType, o.GPUType),
	)
}

// AppendKey appends a key so that keys sort by their fields and no key is the
// beginning of another. Names hold no zero byte.
func AppendKey(b []byte, k Key) []byte {
	for _, part := range [...]string{k.Account, k.User, k.Partition, k.QOS, k.GPUType} {
		b = append(append(b, part...), 0)
	}
	return b
}

// ParseKey reads what AppendKey wrote.
func ParseKey(b []byte) (Key, bool) {
	parts := strings.Split(string(b), "\x00")
	if len(parts) != 6 || parts[5] != "" {
		return Key{}, false
	}
	return Key{parts[0], parts[1], parts[2], parts[3], parts[4]}, true
}
