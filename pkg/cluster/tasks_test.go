package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTasks compares random changes with a plain list, and checks that no earlier value changes.
func TestTasks(t *testing.T) {
	for _, n := range []int{1, 31, 32, 33, 64, 1000} {
		r := rand.New(rand.NewPCG(uint64(n), 1))
		list := make([]Task, n)
		for i := range list {
			list[i].Node = fmt.Sprint("n", i)
		}
		tasks := NewTasks(slices.Clone(list)...)
		for range 300 {
			before, kept := tasks, slices.Clone(list)
			rank := r.IntN(n)
			list[rank].Phase = min(TaskClean, list[rank].Phase+TaskPhase(r.IntN(3)))
			list[rank].CPUTime++
			tasks = tasks.With(rank, list[rank])
			if !slices.Equal(before.List(), kept) || !slices.Equal(tasks.List(), list) {
				t.Fatalf("%d tasks: a change of task %d gives other lists", n, rank)
			}
			changed := slices.Collect(tasks.Changed(before))
			if !slices.Contains(changed, rank) || len(changed) > taskPart {
				t.Fatalf("%d tasks: a change of task %d is a change of %v", n, rank, changed)
			}
			for phase := TaskWanted; phase <= TaskClean; phase++ {
				want := 0
				for i := range list {
					if list[i].Phase >= phase {
						want++
					}
				}
				if tasks.Reached(phase) != want || tasks.AllReached(phase) != (want == n) {
					t.Fatalf("%d of %d tasks have reached phase %d, want %d", tasks.Reached(phase), n, phase, want)
				}
			}
		}
	}
}

func TestNoTasks(t *testing.T) {
	none := NewTasks()
	if none != nil || none.Len() != 0 || none.List() != nil || !none.AllReached(TaskClean) {
		t.Errorf("no tasks are %v", none)
	}
	for rank := range none.All() {
		t.Errorf("no tasks yield %d", rank)
	}
}
