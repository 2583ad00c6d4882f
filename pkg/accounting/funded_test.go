package accounting

import (
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestFundedWithin checks that FundedUntil with a limit is the smaller of the limit and FundedUntil
// without one, whatever prices are set for later.
func TestFundedWithin(t *testing.T) {
	bound, free := 0, 0
	for seed := range uint64(200) {
		l := lived(t, seed, 100).l
		for i := range 10 { // in addition to those of the game
			price := Rate{"H100", Credits(1+(int(seed)+i)%4) * One}
			if _, err := l.SetPrice(Stamp{At: l.now, Key: "p", Natural: true}, price, l.now.Add(time.Duration(1+i)*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		for n := range l.OpenLiens() {
			until := l.FundedUntil(n, cluster.Never)
			for _, limit := range []cluster.Instant{n.Since.Add(time.Minute), l.now.Add(30 * time.Minute), l.now.Add(5 * time.Hour), until - 1, until, l.now.Add(1000 * time.Hour)} {
				got := l.FundedUntil(n, limit)
				if want := min(until, limit); got != want {
					t.Fatalf("seed %d: lien %s is funded until %s and within %s until %s", seed, n.ID, until.Time(), limit.Time(), got.Time())
				}
				if got == limit {
					bound++
				} else {
					free++
				}
			}
		}
	}
	if bound < 1000 || free < 300 {
		t.Fatalf("%d were bound by the limit and %d were not: too few to say anything", bound, free)
	}
}
