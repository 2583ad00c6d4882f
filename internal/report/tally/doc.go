// Package tally adds up the resource use of jobs by half hours and by key.
//
// It decides, from jobs alone, in which half hours a job's resources count, how much was lost, how
// long it waited, and the outcome of its promises. Use counts in the half hours in which the job
// ran, so that a day's sum is the use of that day's machines. Values known only at the end
// (outcome, wait, loss, efficiency, promises) count in the half hour of the end, so that a past day
// does not change. It never reads a clock, and the order of the jobs has no effect.
//
// Half hours, since the days of all but three time zones begin on one. Days of UTC were rejected:
// they cannot be combined into days of another zone.
package tally

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Slot is the length of a slot. Slots begin at multiples of it since the Unix epoch.
const Slot = 30 * time.Minute

// SlotOf returns the beginning of the slot that contains at.
func SlotOf(at cluster.Instant) cluster.Instant { return at - at%cluster.Instant(Slot) }

// Grid divides time into cells: it returns the half-open cell that contains an instant.
type Grid func(at cluster.Instant) (begin, end cluster.Instant)

// Slots is the grid of slots.
func Slots(at cluster.Instant) (begin, end cluster.Instant) {
	begin = SlotOf(at)
	return begin, begin + cluster.Instant(Slot)
}

// Cut returns the grid of slots divided further at bounds, which ascend. O(log bounds).
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

// Key identifies the jobs of a tally.
type Key struct {
	Account, User, Partition, QOS string
	GPUType                       string // "" for jobs without GPUs, and for those that never had one
	WCKey                         string // workload characterization key; "" for jobs without one
}

// Compare orders keys by their fields.
func (k Key) Compare(o Key) int {
	return cmp.Or(
		strings.Compare(k.Account, o.Account), strings.Compare(k.User, o.User), strings.Compare(k.Partition, o.Partition),
		strings.Compare(k.QOS, o.QOS), strings.Compare(k.GPUType, o.GPUType), strings.Compare(k.WCKey, o.WCKey),
	)
}

// AppendKey appends a key so that keys sort by their fields and no key is the
// beginning of another. Names hold no zero byte.
func AppendKey(b []byte, k Key) []byte {
	for _, part := range [...]string{k.Account, k.User, k.Partition, k.QOS, k.GPUType, k.WCKey} {
		b = append(append(b, part...), 0)
	}
	return b
}

// ParseKey reads what AppendKey wrote.
func ParseKey(b []byte) (Key, bool) {
	parts := strings.Split(string(b), "\x00")
	if len(parts) != 7 || parts[6] != "" {
		return Key{}, false
	}
	return Key{parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]}, true
}
