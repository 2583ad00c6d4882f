package agent

import (
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// BenchmarkOneTask measures the node's part of a job: from the desired set to the report of the
// start, and from the end of the program to the report that the task is clean. One node, one task
// at a time, no GPU, `true` as a script.
func BenchmarkOneTask(b *testing.B) {
	for _, kind := range runtimes() {
		b.Run(kind, func(b *testing.B) {
			n := newNode(b, kind, nil)
			n.until("registered", func() bool { return len(n.reports) > 0 })
			job := 0
			var toStart, toEnd, toClean time.Duration
			for b.Loop() {
				job++
				began := time.Now()
				n.want(at(job, 1), "#!/bin/true\n", nil)
				n.reach(at(job, 1), "started")
				toStart += time.Since(began)
				report := n.reach(at(job, 1), "ended")
				toEnd += time.Since(report.GetEnded().AsTime())
				report = n.reach(at(job, 1), "clean")
				toClean += time.Since(report.GetEnded().AsTime())
				n.change(func() { delete(n.wanted, at(job, 1)) })
			}
			for name, sum := range map[string]time.Duration{"wanted-to-started-ms": toStart, "exit-to-ended-ms": toEnd, "exit-to-clean-ms": toClean} {
				b.ReportMetric(float64(sum.Microseconds())/1000/float64(job), name)
			}
		})
	}
}

// BenchmarkManyTasks measures tasks per second of one node, from desired to clean, with eight at a
// time.
func BenchmarkManyTasks(b *testing.B) {
	for _, kind := range runtimes() {
		b.Run(kind, func(b *testing.B) {
			n := newNode(b, kind, nil)
			n.until("registered", func() bool { return len(n.reports) > 0 })
			const together = 8
			job := 0
			began := time.Now()
			for b.Loop() {
				for i := range together {
					n.want(at(job+i+1, 1), "#!/bin/true\n", func(w *greylagv1.WantedTask) { w.Name = "many" })
				}
				for i := range together {
					n.reach(at(job+i+1, 1), "clean")
				}
				n.change(func() { clear(n.wanted) })
				job += together
			}
			b.ReportMetric(float64(job)/time.Since(began).Seconds(), "tasks/s")
		})
	}
}
