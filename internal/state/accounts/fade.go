package accounts

import (
	"cmp"
	"math"
	"math/bits"
	"time"

	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/pkg/cluster"
)

// decayed orders usages by when nothing of them is left.
type decayed struct {
	at  cluster.Instant
	key cluster.AssociationKey
}

func newDecayIndex() cow.Map[decayed, struct{}] {
	return cow.New[decayed, struct{}](func(a, b decayed) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		return compareAssociations(a.key, b.key)
	})
}

// fewFaded is how many usages the start or end of a job may drop: more than it can add.
const fewFaded = 4

// fadesAt returns when nothing of a usage is left, or some time later; never while a job of it
// runs, or without a half-life.
func (x *Accounts) fadesAt(u *cluster.AccountUsage) cluster.Instant {
	half := x.half
	most, running := uint64(max(u.Billed.Value, 0)), u.Billed.Rate != 0
	at := u.Billed.At
	for i := range u.Raw {
		r := &u.Raw[i].Usage
		most |= uint64(max(r.Value, 0)) // has as many bits as the largest
		running = running || r.Rate != 0
		at = max(at, r.At)
	}
	// After as many half-lives as a number has bits it is less than 1, after one more
	// less than a half.
	halvings := int64(bits.Len64(most) + 1)
	if running || half <= 0 || int64(half) > (math.MaxInt64-int64(at))/halvings {
		return cluster.Never
	}
	return at.Add(half * time.Duration(halvings))
}

// fade lists a usage by when nothing of it is left.
func (x *Accounts) fade(u *cluster.AccountUsage) {
	if at := x.fadesAt(u); at != cluster.Never {
		x.fading.Set(decayed{at, u.AssociationKey}, struct{}{})
	}
}

// unfade removes a usage from the list.
func (x *Accounts) unfade(u *cluster.AccountUsage) {
	if at := x.fadesAt(u); at != cluster.Never {
		x.fading.Delete(decayed{at, u.AssociationKey})
	}
}

// Forget drops at most that many usages that decayed to nothing. O(log n) each.
func (x *Accounts) Forget(now cluster.Instant, most int) {
	for range most {
		k, _, found := x.fading.First()
		if !found || k.at > now {
			return
		}
		u, _ := x.usages.Get(k.key)
		x.dropUsage(u)
	}
}
