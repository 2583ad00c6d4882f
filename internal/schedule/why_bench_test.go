package schedule

import (
	"fmt"
	"testing"

	"github.com/greylag/greylag/internal/schedule/explain"
)

// BenchmarkWhy explains the last job of the queue, with all changes tried.
func BenchmarkWhy(b *testing.B) {
	for _, c := range []struct{ nodes, pending int }{{128, 1000}, {1250, 2000}, {1250, 10_000}} {
		b.Run(fmt.Sprintf("nodes=%d,pending=%d", c.nodes, c.pending), func(b *testing.B) {
			snap := full(c.nodes, 8, c.pending, 1)
			last := snap.Pending[len(snap.Pending)-1].ID
			for b.Loop() {
				if _, err := explain.Why(snap, last); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
