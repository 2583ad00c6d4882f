package state

import (
	"cmp"
	"math"
	"math/bits"
	"time"

	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/pkg/cluster"
)

// What was used fades until nothing of it counts any more. Then it is dropped, or a
// cluster would remember everybody who ever ran a job: as jobs start and end, which is
// what adds others. Every replica does so at the same command, since when that is
// follows from the usage and the half-life alone.

// faded orders usages by when nothing is left of them.
type faded struct {
	at  cluster.Instant
	key cluster.AssociationKey
}

func newFading() cow.Map[faded, none] {
	return cow.New[faded, none](func(a, b faded) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		return compareAssociations(a.key, b.key)
	})
}

// fewFaded is how many usages the start or end of a job forgets: more than it can add.
const fewFaded = 4

// fadesAt is when nothing is left of a usage, or some time later; never while something
// of it runs, or nothing is forgotten.
func (s *State) fadesAt(u *cluster.AccountUsage) cluster.Instant {
	half := s.policy.Scheduling.FairShare.HalfLife
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

// fade lists a usage under when nothing is left of it.
func (s *State) fade(u *cluster.AccountUsage) {
	if at := s.fadesAt(u); at != cluster.Never {
		s.fading.Set(faded{at, u.AssociationKey}, none{})
	}
}

// unfade takes a usage off the list.
func (s *State) unfade(u *cluster.AccountUsage) {
	if at := s.fadesAt(u); at != cluster.Never {
		s.fading.Delete(faded{at, u.AssociationKey})
	}
}

// fadeAnew lists all usages again, after the half-life has changed. O(users log users).
func (s *State) fadeAnew() {
	s.fading = newFading()
	for _, u := range s.usages.All() {
		s.fade(u)
	}
}

// forgetUsage drops usages of which nothing is left, at most so many. O(log n) each.
func (s *State) forgetUsage(most int) {
	for range most {
		k, _, found := s.fading.First()
		if !found || k.at > s.now {
			return
		}
		u, _ := s.usages.Get(k.key)
		s.dropUsage(u)
	}
}
