package backfill

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

func TestLanes(t *testing.T) {
	a, b := Lane(0, 5)|Lane(3, 127), Lane(0, 6)|Lane(3, 2)|Lane(7, 9)
	if a.Covers(b) || !b.Covers(Lane(0, 6)) || a.Both(b) != Lane(0, 5)|Lane(3, 2) || b.Sum(Lane(0, 127)|Lane(7, 127)) != 15 {
		t.Fatal(a, b, a.Both(b))
	}
	if Lane(2, 500).Of(2) != maxLane || Lane(2, -1) != 0 {
		t.Fatal("a lane holds what it cannot")
	}
}

// FuzzRow compares a row with a list of what was taken.
func FuzzRow(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		row := NewRow(0, Amount{CPUs: 10})
		type taken struct {
			from, to cluster.Instant
			n        int32
		}
		var all []taken
		free := func(at cluster.Instant) int32 {
			n := int32(10)
			for _, x := range all {
				if x.from <= at && at < x.to {
					n -= x.n
				}
			}
			return n
		}
		for range 40 {
			if len(all) > 0 && r.IntN(3) == 0 {
				i := r.IntN(len(all))
				row.Release(all[i].from, all[i].to, &Amount{CPUs: all[i].n})
				all = append(all[:i], all[i+1:]...)
				continue
			}
			x := taken{from: cluster.Instant(r.IntN(50)), n: 1 + r.Int32N(10)}
			x.to = x.from + cluster.Instant(1+r.IntN(20))
			from, lasts := cluster.Instant(r.IntN(60)), time.Duration(1+r.IntN(15))
			at, ok := row.Earliest(from, 200, lasts, &Amount{CPUs: x.n})
			want := from
		search:
			for ; ; want++ {
				for i := range cluster.Instant(lasts) {
					if free(want+i) < x.n {
						continue search
					}
				}
				break
			}
			if !ok || at != want {
				t.Fatalf("earliest %d %v, not %d", at, ok, want)
			}
			if o, _ := row.opening(from, 200, lasts, &Amount{CPUs: x.n}); o.from != want || o.before <= o.from {
				t.Fatalf("opening %+v, not from %d", o, want)
			}
			all = append(all, x)
			row.Take(x.from, x.to, &Amount{CPUs: x.n})
			slides(t, &row, opening{x.from, x.to}, cluster.Instant(r.IntN(30)), x.n)
		}
		for at := range cluster.Instant(80) {
			if row.Free(at).CPUs != free(at) {
				t.Fatalf("%d free at %d, not %d", row.Free(at).CPUs, at, free(at))
			}
		}
		ordered(t, &row)
	})
}

// slides compares the earliest instant in place with a row in which the amount was not taken.
func slides(t *testing.T, row *Row, taken opening, from cluster.Instant, n int32) {
	t.Helper()
	without, owes := Row{slices.Clone(row.steps)}, false
	without.Release(taken.from, taken.before, &Amount{CPUs: n})
	for _, s := range row.steps {
		owes = owes || s.free.CPUs < 0
	}
	want, lasts := taken.from, taken.before.Sub(taken.from)
	if at, ok := without.Earliest(from, taken.from, lasts, &Amount{CPUs: n}); ok {
		want = at
	}
	if at := row.earliestInPlace(from, taken.from, lasts, &Amount{CPUs: n}); at != want && !owes {
		t.Fatalf("slides to %d, not %d", at, want)
	}
}

// ordered checks the invariant of a row.
func ordered(t *testing.T, row *Row) {
	t.Helper()
	for i := 1; i < len(row.steps); i++ {
		if row.steps[i].from <= row.steps[i-1].from || row.steps[i].free == row.steps[i-1].free {
			t.Fatal("steps are not ascending and different")
		}
	}
}
