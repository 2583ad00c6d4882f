package cloud

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

const begin = cluster.Instant(1_000_000 * time.Hour)

func lease(launch cluster.LeaseID, k *Kind, nodes int32) *cluster.Lease {
	return &cluster.Lease{ID: launch, Launch: launch, Try: 1, Nodes: nodes, Offer: k.Offer, MaxPrice: 2 * k.Offer.Price, Lifetime: time.Hour}
}

// TestPrices: the prices of a history follow each other, and repeat.
func TestPrices(t *testing.T) {
	kinds, err := ReadKinds(strings.NewReader("name,price,cpus,boot\nm8/a,1,8,2m\nm8/a,3,8,2m\n"))
	if !errors.Is(err, ErrTable) {
		t.Fatalf("an offer twice: %v, %v", kinds, err)
	}
	if kinds, err = ReadKinds(strings.NewReader("name,market,price,cpus,boot\nm8/a,spot,1,8,2m\nm8/a,on-demand,3,8,2m\n")); err != nil {
		t.Fatal(err)
	}
	history := "SpotPrice,Timestamp,InstanceType,AvailabilityZone\n0.50,2026-03-01T02:00:00Z,m8,a\n0.25,2026-03-01T00:00:00Z,m8,a\n9,2026-03-01T01:00:00Z,m9,a\n"
	if err := ReadPrices(strings.NewReader(history), kinds); err != nil {
		t.Fatal(err)
	}
	c := New(kinds, 1, begin)
	for _, x := range []struct {
		after, next time.Duration
		price       int64
	}{{0, 2 * time.Hour, 250_000}, {119 * time.Minute, 2 * time.Hour, 250_000}, {2 * time.Hour, 3*time.Hour + time.Second, 500_000}, {3*time.Hour + time.Second, 5*time.Hour + time.Second, 250_000}} {
		list, change := c.Offers(begin.Add(x.after))
		if list[0].Price != x.price || list[1].Price != 3_000_000 || change != begin.Add(x.next) {
			t.Errorf("after %s: %d, %d, next change after %s", x.after, list[0].Price, list[1].Price, change.Sub(begin))
		}
	}
}

// TestLaunch: a repeated request returns the same instances, and a request fails as the table says.
func TestLaunch(t *testing.T) {
	kinds, err := ReadKinds(strings.NewReader("name,price,cpus,boot,boot_min,risk,no_capacity\nfull,1,8,5m,,0,99.9999%\nfree,1,8,5m,1m,50%,0\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := New(kinds, 1, begin)
	if _, err := c.Launch(begin, lease(1, &kinds[0], 1)); !errors.Is(err, ErrNoCapacity) {
		t.Errorf("without capacity: %v", err)
	}
	dear := lease(2, &kinds[1], 1)
	dear.MaxPrice = 1
	if _, err := c.Launch(begin, dear); !errors.Is(err, ErrPrice) {
		t.Errorf("above the price: %v", err)
	}
	list, err := c.Launch(begin, lease(3, &kinds[1], 4))
	if err != nil || len(list) != 4 || c.Live() != 4 {
		t.Fatalf("%d instances, %v", len(list), err)
	}
	again, err := c.Launch(begin.Add(time.Minute), lease(3, &kinds[1], 4))
	if err != nil || again[0] != list[0] || c.Live() != 4 {
		t.Errorf("a repeated request: %d instances live, %v", c.Live(), err)
	}
	for _, x := range list {
		if d := x.Joins.Sub(begin); d < time.Minute || d > 5*time.Minute || x.Notice <= begin {
			t.Errorf("%s joins after %s, notice at %d", x.ID, d, x.Notice)
		}
	}
	c.End(begin.Add(30*time.Minute), list[0], true)
	if !c.List(begin)[0].Interrupted || list[0].Hours(begin.Add(time.Hour)) != 0.5 || c.Live() != 3 {
		t.Errorf("after the end of one: %+v", c.List(begin)[0])
	}
	if c.Forget(list[0]); c.Find(list[0].ID) != nil || len(c.List(begin)) != 3 {
		t.Error("a forgotten instance is listed")
	}
}

// TestReclaims: half of the nodes with a risk of 50 % are taken back within an hour.
func TestReclaims(t *testing.T) {
	kinds := []Kind{{Offer: cluster.Offer{Name: "n", Market: cluster.Spot, Price: 1, Risk: cluster.OneUnit / 2}}}
	c := New(kinds, 7, begin)
	list, err := c.Launch(begin, lease(1, &kinds[0], 10_000))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, x := range list {
		if x.Notice <= begin.Add(time.Hour) {
			n++
		}
	}
	if n < 4_800 || n > 5_200 {
		t.Errorf("%d of %d were taken back within an hour", n, len(list))
	}
}
