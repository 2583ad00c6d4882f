package state

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// distinct returns a submission by one of a thousand users. Unless same, its job differs from all
// others by name and arguments.
func distinct(n int, same bool) command.Submission {
	user := n % 1000
	if same {
		n = 0
	}
	return command.Submission{DefaultTime: true, Spec: cluster.JobSpec{
		Name: fmt.Sprintf("train-%d", n), Account: fmt.Sprintf("project%d", user%50),
		Owner:   cluster.Identity{User: fmt.Sprintf("user%03d", user), UID: uint32(1000 + user), GID: 100},
		Request: cluster.Request{Nodes: 1, GPUsPerNode: 1, CPUsPerTask: 8, MemPerGPU: 64 * cluster.GiB},
		Args:    []string{"--seed", fmt.Sprint(n)}, WorkDir: fmt.Sprintf("/home/user%03d/run", user),
		Output: "slurm-%j.out", Requeue: true, SubmitHost: "login1",
	}}
}

// batch returns one command with jobs of one user.
func batch(first, jobs int, same bool) *command.SubmitJobs {
	c := &command.SubmitJobs{}
	for i := range jobs {
		sub := distinct(first+1000*i, same)
		c.Actor.Identity = sub.Spec.Owner
		c.Jobs = append(c.Jobs, sub)
	}
	return c
}

// farm registers nodes with 8 GPUs each.
func farm(s *State, nodes int) {
	for i := range nodes {
		n := cluster.Node{Name: fmt.Sprintf("gpu%04d", i), BootID: "b", CPUs: 128, Memory: 1024 * cluster.GiB}
		for g := range 8 {
			n.GPUs = append(n.GPUs, cluster.GPU{Index: int32(g), Type: "h100"})
		}
		s.Apply(uint64(i)+1, 1, &command.RegisterNode{Node: n})
	}
	s.Effects()
}

func queue(jobs int, same bool) *State {
	s := New()
	farm(s, 100)
	for i := range jobs / 100 {
		s.Apply(1000+uint64(i), cluster.Instant(i), batch(i, 100, same))
		s.Effects()
	}
	return s
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cpu returns the processor time of this process. On a machine with other load it is a better
// measure than the clock.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMemory measures the heap of 1,000,000 pending jobs of 1,000 users, 100 nodes.
func BenchmarkMemory(b *testing.B) {
	for _, same := range []bool{true, false} {
		b.Run(fmt.Sprintf("same=%v", same), func(b *testing.B) {
			for b.Loop() {
				before := heap()
				s := queue(1_000_000, same)
				used := heap() - before
				b.ReportMetric(float64(used)/1e6, "MB")
				b.ReportMetric(float64(used)/1e6, "B/job")
				runtime.KeepAlive(s)
			}
		})
	}
}

// BenchmarkSubmit submits jobs to a queue, in commands of 100, with a view after each command, 100
// nodes. decoded includes reading the log entry.
func BenchmarkSubmit(b *testing.B) {
	for _, same := range []bool{true, false} {
		for _, decoded := range []bool{false, true} {
			b.Run(fmt.Sprintf("same=%v/decoded=%v", same, decoded), func(b *testing.B) {
				s := queue(100_000, same)
				var entries [][]byte
				var commands []command.Command
				for i := range 1000 {
					commands = append(commands, batch(i, 100, same))
					entries = append(entries, command.Encode(commands[i]))
				}
				b.ReportAllocs()
				runtime.GC()
				b.ResetTimer()
				began := cpu(b)
				for i := 0; i < b.N; i += 100 {
					at := i / 100 % len(entries)
					if decoded {
						commands[at], _ = command.Decode(entries[at])
					}
					if r, refused := s.Apply(s.index+1, s.now, commands[at]).(*command.Refusal); refused {
						b.Fatal(r)
					}
					s.Effects()
					s.View()
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
				b.ReportMetric(float64(cpu(b)-began)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// BenchmarkLife runs a job from submission to its finished record, in single commands with a view
// after each: 5 commands, 100,000 other pending jobs, 100 nodes.
func BenchmarkLife(b *testing.B) {
	s := queue(100_000, false)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		r := s.Apply(s.index+1, s.now, batch(i, 1, false)).(*command.Submitted)
		s.View()
		node := fmt.Sprintf("gpu%04d", i%100)
		n, _ := s.nodes.Get(node)
		start := cluster.PlannedStart{Job: r.First[0], Attempt: 1, Placement: cluster.Placement{
			Nodes: []cluster.NodeAllocation{{Node: node, GPUs: []int32{0}, CPUs: 8, Memory: 64 * cluster.GiB}},
		}}
		c := s.Apply(s.index+1, s.now, &command.CommitPlan{Plan: cluster.Plan{Index: s.index, Starts: []cluster.PlannedStart{start}}})
		if len(c.(*command.Committed).Started) != 1 {
			b.Fatal(c)
		}
		s.View()
		for phase := cluster.TaskStarted; phase <= cluster.TaskClean; phase++ {
			s.Apply(s.index+1, s.now, &command.ReportTasks{Node: node, Epoch: n.Epoch, Seen: s.index, Tasks: []command.TaskReport{
				{Job: r.First[0], Attempt: 1, Task: cluster.Task{Phase: phase, Cause: cluster.Exited}},
			}})
			s.View()
		}
		if len(s.Effects().Finished) != 1 {
			b.Fatal("the job did not end")
		}
	}
}

// BenchmarkSnapshot writes and reads a snapshot of 1,000,000 pending jobs.
func BenchmarkSnapshot(b *testing.B) {
	s := queue(1_000_000, false)
	var data bytes.Buffer
	if err := s.View().Encode(&data); err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		b.ReportMetric(float64(data.Len())/1e6, "MB")
		for b.Loop() {
			if err := s.View().Encode(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, err := Decode(bytes.NewReader(data.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pass", func(b *testing.B) { // the first step of a scheduling pass
		for b.Loop() {
			s.View().Snapshot()
		}
	})
}
