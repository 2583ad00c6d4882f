package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// BenchmarkReserved plans 2,000 jobs of 8 shapes on 1,250 busy nodes. The given number of nodes is
// reserved from an hour on.
func BenchmarkReserved(b *testing.B) {
	for _, x := range []struct {
		nodes int
		users []string
	}{{}, {100, []string{"ada"}}, {1250, []string{"ada"}}, {1250, nil}} {
		b.Run(fmt.Sprintf("nodes=1250/reserved=%d/members=%d/pending=2000", x.nodes, len(x.users)), func(b *testing.B) {
			snap := crowd(b, 1250, 2000, false)
			for i, j := range snap.Pending {
				j.Spec.Request.GPUsPerNode = int32(1 + i%8)
			}
			if x.nodes > 0 {
				snap.Policy.Scheduling.Reservations = []cluster.Reservation{{
					Name: "course", Start: start.Add(time.Hour), End: start.Add(5 * time.Hour),
					Nodes: []string{fmt.Sprintf("n[0000-%04d]", x.nodes-1)}, Users: x.users,
				}}
			}
			b.ReportAllocs()
			for b.Loop() {
				Decide(snap)
			}
		})
	}
}
