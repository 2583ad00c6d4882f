package raftlog

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkPropose measures commands of 300 bytes with real files and fsync, TCP on loopback, and
// all members in this process on one disk. For comparison: hashicorp/raft alone on such a machine
// (2 cores), one entry a command: one member 2.6k/s for 1 caller, 44k for 64, 114k for 1,024; three
// members 790, 13.6k, 42k.
func BenchmarkPropose(b *testing.B) {
	for _, members := range []int{1, 3} {
		for _, callers := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("members=%d/callers=%d", members, callers), func(b *testing.B) {
				benchPropose(b, members, callers, 1)
			})
		}
		b.Run(fmt.Sprintf("members=%d/callers=8/many=256", members), func(b *testing.B) {
			benchPropose(b, members, 8, 256)
		})
	}
}

func benchFleet(b *testing.B, members int) *fleet {
	f := newFleet(b, nil)
	f.tweak = func(c *Config) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		c.Stream, c.Addr = TCPStream{l}, l.Addr().String()
	}
	f.grow(members)
	for _, n := range f.nodes {
		n.fsm.mu.Lock()
		n.fsm.bulk = true
		n.fsm.mu.Unlock()
	}
	return f
}

func benchPropose(b *testing.B, members, callers, many int) {
	f := benchFleet(b, members)
	defer f.close()
	n := f.leader()
	commands := slices.Repeat([][]byte{bytes.Repeat([]byte("x"), 300)}, many)
	took := make([][]time.Duration, callers)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for left.Add(-int64(many)) > -int64(many) {
				start := time.Now()
				if _, _, err := n.ProposeMany(context.Background(), commands); err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	report(b, slices.Concat(took...))
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkReadIndex measures linearizable reads on the leader.
func BenchmarkReadIndex(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("members=3/callers=%d", callers), func(b *testing.B) {
			f := benchFleet(b, 3)
			defer f.close()
			n := f.leader()
			took := make([][]time.Duration, callers)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						start := time.Now()
						if _, err := n.ReadIndex(context.Background()); err != nil {
							b.Error(err)
						}
						took[i] = append(took[i], time.Since(start))
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			report(b, slices.Concat(took...))
		})
	}
}
