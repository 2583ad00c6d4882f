package trace

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Model draws the requested time of a job from its run time, as in a log: the run time multiplied
// by the ratio of request to run time of one of the log's jobs, rounded up to one of its ten most
// popular requests; beyond all of them, to full hours.
type Model struct {
	ratios  []float64
	popular []time.Duration // ascending
}

// NewModel learns from a log. Jobs that ran for less than a minute are left out: their ratios say
// more about failures than about estimates.
func NewModel(log *Trace) *Model {
	m := &Model{}
	times := map[time.Duration]int{}
	for i := range log.Jobs {
		j := &log.Jobs[i]
		times[j.Estimate]++
		if j.Run >= time.Minute {
			m.ratios = append(m.ratios, float64(j.Estimate)/float64(j.Run))
		}
	}
	for t := range times {
		m.popular = append(m.popular, t)
	}
	slices.SortFunc(m.popular, func(a, b time.Duration) int { return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(a, b)) })
	m.popular = m.popular[:min(10, len(m.popular))]
	slices.Sort(m.popular)
	return m
}

// Apply sets the estimate of every job of a log that requests exactly its run time, from a seed.
// O(jobs).
func (m *Model) Apply(log *Trace, seed uint64) {
	if len(m.ratios) == 0 {
		return
	}
	r := rand.New(rand.NewPCG(seed, 3))
	for i := range log.Jobs {
		j := &log.Jobs[i]
		ratio := m.ratios[r.IntN(len(m.ratios))]
		if j.Estimate == j.Run {
			j.Estimate = m.round(min(float64(j.Run)*ratio, float64(maxSeconds*time.Second)))
		}
	}
}

func (m *Model) round(asked float64) time.Duration {
	d := time.Duration(asked)
	for _, p := range m.popular {
		if p >= d {
			return p
		}
	}
	return (d + time.Hour - 1) / time.Hour * time.Hour
}
