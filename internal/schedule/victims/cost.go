package victims

import "cmp"

// Cost is what ending jobs costs. The costs of jobs add up.
type Cost struct {
	Loss    int64 // work to repeat, in GPU-seconds
	CPULoss int64 // the same of jobs without GPUs, in CPU-seconds
	Jobs    int64
	Started int64 // sum of the starts in seconds: the larger, the younger the jobs
	IDs     int64 // sum of the IDs
}

// Plus returns the sum of two costs.
func (c Cost) Plus(o Cost) Cost {
	return Cost{c.Loss + o.Loss, c.CPULoss + o.CPULoss, c.Jobs + o.Jobs, c.Started + o.Started, c.IDs + o.IDs}
}

// Compare puts the least loss first, then the fewest jobs, then the youngest, then the highest IDs.
func (c Cost) Compare(o Cost) int {
	return cmp.Or(cmp.Compare(c.Loss, o.Loss), cmp.Compare(c.CPULoss, o.CPULoss), cmp.Compare(c.Jobs, o.Jobs),
		cmp.Compare(o.Started, c.Started), cmp.Compare(o.IDs, c.IDs))
}
