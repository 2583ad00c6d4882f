package server_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/server/limits"
)

// fill adds n pending jobs to the queue: the cluster has no nodes.
func fill(b *testing.B, w *world, n int) {
	b.Helper()
	c := w.as(root)
	for n > 0 {
		request := &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID()}
		for range min(n, 2000) {
			request.Jobs = append(request.Jobs, job("train"))
		}
		n -= len(request.Jobs)
		_, err := c.Jobs().SubmitJobs(context.Background(), request)
		must(b, err)
	}
}

// BenchmarkQueue reads a queue of 100,000 pending jobs as gqueue does: over TLS, in
// brief, to the last byte. 1 controller, no nodes.
func BenchmarkQueue(b *testing.B) {
	w := newWorld(b, options{})
	const jobs = 100_000
	fill(b, w, jobs)
	c := w.as(ann)
	for b.Loop() {
		stream, err := c.Jobs().StreamJobs(context.Background(), &greylagv1.ListJobsRequest{Brief: true})
		must(b, err)
		n := 0
		for stream.Receive() {
			n += len(stream.Msg().GetJobs())
		}
		if must(b, stream.Err()); n != jobs {
			b.Fatalf("%d jobs", n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/queue")
}

// BenchmarkSubmit submits one job per request, each client over its own connection, with real
// fsync.
func BenchmarkSubmit(b *testing.B) {
	for _, controllers := range []int{1, 3} {
		for _, clients := range []int{1, 64} {
			b.Run(fmt.Sprintf("%dcontrollers/%dclients", controllers, clients), func(b *testing.B) {
				w := newWorld(b, options{controllers: controllers, limits: limits.Config{Rate: 1e9, Burst: 1e9}})
				leader := w.leader()
				var left atomic.Int64
				left.Store(int64(b.N))
				done := make(chan error, clients)
				b.ResetTimer()
				for range clients {
					c := w.as(root, leader)
					go func() {
						for left.Add(-1) >= 0 {
							if _, err := c.Jobs().SubmitJobs(context.Background(), &greylagv1.SubmitJobsRequest{
								RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{job("bench")},
							}); err != nil {
								done <- err
								return
							}
						}
						done <- nil
					}()
				}
				for range clients {
					must(b, <-done)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			})
		}
	}
}
