package state

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// BenchmarkSizing measures heap, snapshot and log for the page docs/sizing.md: 1,000 nodes with 8
// GPUs each, 100,000 pending jobs that all differ, and 8,000 running and finished ones on 1,000 nodes.
// The last two include the nodes.
func BenchmarkSizing(b *testing.B) {
	for _, c := range []struct {
		name  string
		count int
		// fill adds what is counted and returns the bytes of its log entries.
		fill func(b *testing.B, s *State) int
	}{
		{"nodes=1000", 1000, func(_ *testing.B, s *State) int { return realFarm(s, 1000) }},
		{"pending=100000", 100_000, func(b *testing.B, s *State) int { return submitAll(b, s, 100_000) }},
		{"running=8000", 8000, func(b *testing.B, s *State) int {
			realFarm(s, 1000)
			return submitAll(b, s, 8000) + startAll(b, s)
		}},
		{"finished=8000", 8000, func(b *testing.B, s *State) int {
			realFarm(s, 1000)
			return submitAll(b, s, 8000) + startAll(b, s) + endAll(b, s)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				s := New()
				log := c.fill(b, s)
				used := heap() - before
				var data bytes.Buffer
				if err := s.View().Encode(&data); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(used)/float64(c.count), "heap-B/one")
				b.ReportMetric(float64(data.Len())/float64(c.count), "snapshot-B/one")
				b.ReportMetric(float64(log)/float64(c.count), "log-B/one")
				runtime.KeepAlive(s)
			}
		})
	}
}

// realFarm registers nodes with what real ones report, and returns the size of their log entries.
func realFarm(s *State, nodes int) (size int) {
	for i := range nodes {
		n := cluster.Node{
			Name: fmt.Sprintf("gpu%04d", i), Address: fmt.Sprintf("10.1.%d.%d", i/250, i%250), BootID: fmt.Sprintf("%036d", i), CPUs: 128, Memory: 1024 * cluster.GiB,
			Features: []string{"nvme", "ib"}, Version: "v0.1.0-12-g0123456789", Runtime: "containerd 1.7.24 crun",
		}
		for g := range 8 {
			n.GPUs = append(n.GPUs, cluster.GPU{Index: int32(g), UUID: fmt.Sprintf("GPU-%036d", i*8+g), Type: "h100", Memory: 80 * cluster.GiB, Domain: n.Name})
		}
		c := &command.RegisterNode{Node: n}
		size += len(command.Encode(c))
		s.Apply(s.index+1, 1, c)
	}
	s.Effects()
	return size
}

// submitAll submits jobs one by one, and returns the size of their log entries.
func submitAll(b *testing.B, s *State, jobs int) (size int) {
	for i := range jobs {
		c := batch(i, 1, false)
		size += len(command.Encode(c))
		if r, refused := s.Apply(s.index+1, cluster.Instant(i), c).(*command.Refusal); refused {
			b.Fatal(r)
		}
	}
	s.Effects()
	return size
}

// startAll starts each job on a GPU of its own, and returns the size of the log entries.
func startAll(b *testing.B, s *State) (size int) {
	started := 0
	for j := range s.View().Jobs(0) {
		start := cluster.PlannedStart{Job: j.ID, Attempt: 1, Placement: cluster.Placement{
			Nodes: []cluster.NodeAllocation{{Node: fmt.Sprintf("gpu%04d", started/8), GPUs: []int32{int32(started % 8)}, CPUs: 8, Memory: 64 * cluster.GiB}},
		}}
		c := &command.CommitPlan{Plan: cluster.Plan{Index: s.index, Starts: []cluster.PlannedStart{start}}}
		size += len(command.Encode(c))
		if done := s.Apply(s.index+1, s.now, c).(*command.Committed); len(done.Started) != 1 {
			b.Fatal(done)
		}
		started++
	}
	s.Effects()
	return size
}

// endAll ends the running jobs of each node, and returns the size of the log entries.
func endAll(b *testing.B, s *State) (size int) {
	byNode := map[string][]cluster.JobID{}
	for j := range s.View().Jobs(0) {
		for _, n := range j.Alloc.Nodes {
			byNode[n.Node] = append(byNode[n.Node], j.ID)
		}
	}
	for node, jobs := range byNode {
		n, _ := s.nodes.Get(node)
		for phase := cluster.TaskStarted; phase <= cluster.TaskClean; phase++ {
			c := &command.ReportTasks{Node: node, Epoch: n.Epoch, Seen: s.index}
			for _, id := range jobs {
				c.Tasks = append(c.Tasks, command.TaskReport{Job: id, Attempt: 1, Task: cluster.Task{Phase: phase, Cause: cluster.Exited}})
			}
			size += len(command.Encode(c))
			s.Apply(s.index+1, s.now, c)
		}
	}
	if finished := len(s.Effects().Finished); finished != 8*len(byNode) {
		b.Fatalf("%d jobs of %d nodes ended", finished, len(byNode))
	}
	return size
}
