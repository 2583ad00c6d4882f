package strict

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

func TestDurationsAndSizesAreReadAsWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		d := time.Duration(r.Int64N(int64(maxDays)*24*int64(time.Hour)) >> r.IntN(60))
		if got, err := parseDuration(FormatDuration(d)); err != nil || got != d {
			t.Fatalf("%d ns was written %q and read %d, %v", d, FormatDuration(d), got, err)
		}
		b := cluster.Bytes(r.Int64() >> r.IntN(62))
		if got, err := cluster.ParseBytes(formatBytes(b), 1); err != nil || got != b {
			t.Fatalf("%d bytes were written %q and read %d, %v", b, formatBytes(b), got, err)
		}
	}
}
