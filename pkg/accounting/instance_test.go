package accounting

import (
	"errors"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestInstancePrice: an instance costs its share of its parent, until its profile has a price.
func TestInstancePrice(t *testing.T) {
	const instance = "1g.10gb@h100:8"
	l, now, later := New(), base.Add(time.Second), base.Add(time.Hour)
	set := func(key string, r Rate, from cluster.Instant) {
		t.Helper()
		if _, err := l.SetPrice(Stamp{At: base, Key: key}, r, from); err != nil {
			t.Fatal(err)
		}
	}
	set("a", Rate{"a100", One}, 0)
	if _, err := l.Price(instance, now); !errors.Is(err, ErrNoPrice) {
		t.Error(err)
	}
	set("b", Rate{"h100", 2 * One}, 0)
	set("c", Rate{"1g.10gb", 5}, later)
	for _, c := range []struct {
		gpuType string
		at      cluster.Instant
		want    Credits
	}{
		{instance, now, 285_714}, {"3g.40gb@h100:28", now, One}, {instance, later - 1, 285_714},
		{instance, later, 5}, {"1g.10gb@a100:8", later, 5}, {"2g.20gb@a100:16", later, 285_714},
	} {
		if got, err := l.Price(c.gpuType, c.at); err != nil || got != c.want {
			t.Errorf("%s at %d: %s, %v; want %s", c.gpuType, c.at, got, err, c.want)
		}
	}
	// A floating lien follows the prices of both.
	if at := l.changes(base-1, later, instance); len(at) != 2 || at[0] >= now || at[1] != later {
		t.Errorf("changes at %v", at)
	}
}

// TestInstanceQuoted: an instance that an exclusive job keeps costs its share of a quoted parent, and a scope names
// it by profile.
func TestInstanceQuoted(t *testing.T) {
	rates := []Rate{{"h100", 2 * One}, {"1g.10gb@a100:8", 7}}
	for gpuType, want := range map[string]Credits{
		"h100": 2 * One, "1g.10gb@h100:8": 285_714, "1g.10gb@a100:8": 7, "1g.10gb@l40:8": 2 * One, "l40": 2 * One,
	} {
		if got := quoted(rates, gpuType); got != want {
			t.Errorf("%s is charged at %s, want %s", gpuType, got, want)
		}
	}
	s := BucketScope{GPUTypes: []string{"1g.10gb"}}
	for gpuType, want := range map[string]bool{"1g.10gb": true, "1g.10gb@h100:8": true, "2g.20gb@h100:16": false, "h100": false} {
		if s.includes(gpuType) != want {
			t.Errorf("%s is in the scope: %t", gpuType, !want)
		}
	}
}
