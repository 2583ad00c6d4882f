package backfill_test

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// ExampleProfile_Earliest plans three jobs in order. A job of three GPUs is planned
// behind a running one; a short job of one GPU still starts at once.
func ExampleProfile_Earliest() {
	host := topology.NewHost(&cluster.Node{
		Name: "n1", CPUs: 16, Memory: 64 * cluster.GiB,
		GPUs: []cluster.GPU{{Index: 0, Type: "h100"}, {Index: 1, Type: "h100"}, {Index: 2, Type: "h100"}, {Index: 3, Type: "h100"}},
	})
	profile := backfill.New(0, []*topology.Host{host}, nil, nil)
	for _, job := range []struct {
		gpus  int32
		limit time.Duration
	}{{2, time.Hour}, {3, 2 * time.Hour}, {1, 30 * time.Minute}} {
		need := topology.NeedOf(&cluster.Request{GPUs: job.gpus, Nodes: 1})
		want := profile.Want(need, job.limit, backfill.HostConstraint{})
		start, ok := profile.Earliest(want, 0, cluster.Never)
		if !ok {
			fmt.Println("never")
			continue
		}
		profile.Book(want, start.At, start.Shares)
		fmt.Println(job.gpus, "GPUs at", time.Duration(start.At))
	}
	// Output:
	// 2 GPUs at 0s
	// 3 GPUs at 1h0m0s
	// 1 GPUs at 0s
}
