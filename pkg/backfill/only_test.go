package backfill

import (
	"reflect"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestOnly compares a host that is open only for a while with one that is closed before and after,
// in searches and in the index.
func TestOnly(t *testing.T) {
	for seed := range uint64(40) {
		w, like := newWorld(t, seed), newWorld(t, seed)
		wall := &Amount{Slots: Blocked}
		for h := range w.p.Hosts() {
			if w.r.IntN(2) == 0 {
				continue
			}
			from := minute * cluster.Instant(900+w.r.IntN(3000))
			to := from + minute*cluster.Instant(w.r.IntN([]int{3000, 60_000}[w.r.IntN(2)]))
			w.p.RestrictHost(h, from, to)
			like.p.Take(h, 0, from, wall)
			like.p.Take(h, max(from, to), cluster.Never, wall)
		}
		like.r = newWorld(t, seed+1000).r // the same in both from here on
		w.r = newWorld(t, seed+1000).r
		var wants, others []*Want
		for range 5 {
			wants, others = append(wants, w.ask()), append(others, like.ask())
		}
		for i := range 60 {
			k := w.r.IntN(len(wants))
			s, ok := w.p.Earliest(wants[k], w.p.Now(), cluster.Never)
			o, fits := like.p.Earliest(others[k], w.p.Now(), cluster.Never)
			if ok != fits || !reflect.DeepEqual(s, o) {
				t.Fatalf("seed %d, step %d: %+v starts %v %+v, not %v %+v", seed, i, wants[k].Need, ok, s, fits, o)
			}
			if i <= 20 { // later on some bins have ended
				w.checkIndex()
			}
			if !ok {
				continue
			}
			w.p.Book(wants[k], s.At, s.Shares)
			like.p.Book(others[k], o.At, o.Shares)
			if i == 20 || i == 40 { // the second time bins are dropped
				later := w.p.Now().Add(time.Duration(i-10) * 12 * time.Hour)
				w.p.Advance(later)
				like.p.Advance(later)
			}
		}
	}
}
