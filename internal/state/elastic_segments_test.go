package state

import (
	"fmt"
	"strings"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestSegmentsSuffice grows and shrinks a job until it grows no more: each node that leaves is a segment of its bill,
// which always covers the nodes that the job has.
func TestSegmentsSuffice(t *testing.T) {
	x := newScript(t)
	do := func(format string, a ...any) {
		for line := range strings.SplitSeq(fmt.Sprintf(format, a...), "\n") {
			x.run(line)
		}
	}
	const nodes = 33
	do("at 1h")
	for i := 1; i <= nodes; i++ {
		do("node n%d gpus=4:h100", i)
	}
	do("policy root\ncharging root on\naccount op add ml + add ml user=ada\ncredit root price type=h100 amount=2\ncredit root grant account=ml amount=10000000 key=3/1")
	do("submit ada nodes=1 upto=%d step=1 gpusper=4 time=100h account=ml\npass\ncommit", nodes)
	for i := 1; i <= nodes; i++ {
		do("report n%d 1/1 started", i)
	}
	for cycle := range 33 {
		at := 60 + 40*(cycle+1)
		do("at %dm\ntick\nsubmit ada nodes=%d gpusper=4 time=10m account=ml\npass\ncommit", at, nodes-1)
		do("at %dm\ntick\ncancel ada %d", at+2, cycle+2)
		for i := 2; i <= nodes; i++ { // each node takes its own time to clean up
			do("at %dm%ds\nreport n%d 1/1 clean cause=stopped", at+2, i, i)
		}
		j, _ := x.s.job(1)
		n, _ := x.s.credits.OpenLien(1, 1)
		if last := n.Segments[len(n.Segments)-1]; last.GPUs != int64(4*len(j.Alloc.Nodes)) {
			t.Fatalf("%d nodes with 4 GPUs, and %d GPUs are billed: %v", len(j.Alloc.Nodes), last.GPUs, x.s.Check())
		}
		do("at %dm\ntick\npass\ncommit", at+20)
		for i := 2; i <= nodes; i++ {
			do("report n%d 1/1 started", i)
		}
	}
	j, _ := x.s.job(1)
	if faults := x.s.Check(); faults != nil || j.Members.Resizes < cluster.MaxResizes-5 {
		t.Errorf("%d changes, %v", j.Members.Resizes, faults)
	}
}
