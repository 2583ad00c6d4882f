package reliability

import (
	"math"
	"slices"
)

// Spread is how values are distributed.
type Spread struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	Min  float64 `json:"min"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

func spreadOf(values []float64) Spread {
	n := len(values)
	if n == 0 {
		return Spread{}
	}
	slices.Sort(values)
	at := func(part float64) float64 { return values[min(n-1, int(math.Ceil(part*float64(n)))-1)] }
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return Spread{n, sum / float64(n), values[0], at(0.5), at(0.9), at(0.99), values[n-1]}
}

// Summary is what runs of one model under several seeds have measured. Times are in seconds.
type Summary struct {
	Seeds           int                `json:"seeds"`
	Model           string             `json:"model"` // the words in which it differs from the default one
	Effective       Spread             `json:"effective"`
	Restarts        Spread             `json:"restarts"`           // of the large job: from the failure until it works again
	Placed          Spread             `json:"placed"`             // from the end of the attempt until it has nodes
	PlacedIn60      float64            `json:"placed_in_60s"`      // part of them
	WaitedIn60      float64            `json:"waited_at_most_60s"` // likewise, from the end of the pause after the failure
	Repeated        Spread             `json:"repeated"`           // work of the large job that a failure destroyed
	GangFailures    float64            `json:"gang_failures"`      // per run
	GangCauses      map[string]float64 `json:"gang_failures_by_cause"`
	FromDay10       float64            `json:"gang_failures_from_day_10"`
	MTTF            map[int32]float64  `json:"mttf_hours"` // by nodes of a job
	GPUHours        float64            `json:"gpu_hours"`
	Lost            map[string]float64 `json:"lost_percent"`              // of the GPU-hours, by cause
	Writes          float64            `json:"checkpoint_writes_percent"` // of the GPU-hours
	RepeatedPercent map[string]float64 `json:"repeated_percent"`
	NodeFailures    float64            `json:"node_failures"`
	NodeDays        float64            `json:"node_days"`
	Resumed         float64            `json:"resumed_by_operators"`
	Held            int                `json:"held"` // in all runs
	GangHeld        int                `json:"gang_held"`
	Failed          int                `json:"failed"`
	GangFailed      int                `json:"gang_failed"`
	Jobs            float64            `json:"jobs"`
	Preempted       float64            `json:"preempted"`
	Preemptors      float64            `json:"preemptors"`
	NotStarted      int                `json:"preemptors_not_started"`
	MostPreempt     int                `json:"most_preemptions_of_a_job_in_a_day"`
	LongestWait     Spread             `json:"longest_wait"`
	MostDrained     int                `json:"most_drained_in_10_minutes"`
	Drained         float64            `json:"drained_at_the_end"`
	Commands        int                `json:"commands"`
	Often           float64            `json:"often"` // nodes that fail often, in a run
	OftenFound      float64            `json:"often_found"`
	OftenFalse      float64            `json:"often_false"`
}

// Summarize summarizes runs of one model.
func Summarize(m *Model, runs []*Result) *Summary {
	s := &Summary{Seeds: len(runs), Model: m.String(), MTTF: map[int32]float64{}, GangCauses: map[string]float64{}, Lost: map[string]float64{}, RepeatedPercent: map[string]float64{}}
	var effective, restarts, placed, repeated, waits []float64
	var in60, waited60 float64
	sizes, n := map[int32]*Size{}, float64(len(runs))
	for _, r := range runs {
		if m.Gang > 0 {
			effective = append(effective, r.Effective)
		}
		restarts, placed, repeated = append(restarts, r.Restarts...), append(placed, r.Placed...), append(repeated, r.Repeated...)
		waits = append(waits, r.LongestWait)
		in60, waited60 = in60+within60(r.Placed), waited60+within60(r.Waited)
		for cause, count := range r.GangCause {
			s.GangCauses[cause] += float64(count) / n
		}
		for _, at := range r.GangDays {
			if s.GangFailures += 1 / n; at >= 10 {
				s.FromDay10 += 1 / n
			}
		}
		s.add(r, n)
		for nodes, z := range r.Sizes {
			if sizes[nodes] == nil {
				sizes[nodes] = &Size{}
			}
			sizes[nodes].Hours += z.Hours
			sizes[nodes].Failures += z.Failures
		}
	}
	for nodes, z := range sizes {
		if z.Failures > 0 {
			s.MTTF[nodes] = z.Hours / float64(z.Failures)
		}
	}
	for _, parts := range []map[string]float64{s.Lost, s.RepeatedPercent} {
		for cause := range parts {
			parts[cause] *= 100 / max(s.GPUHours*n, 1)
		}
	}
	s.Writes = s.Lost[causeWrites]
	delete(s.Lost, causeWrites)
	s.PlacedIn60, s.WaitedIn60 = in60/max(1, float64(len(placed))), waited60/max(1, float64(len(placed)))
	s.NodeDays = float64(m.Nodes) * m.Days.Hours() / 24
	s.Effective, s.Restarts, s.Placed, s.Repeated, s.LongestWait = spreadOf(effective), spreadOf(restarts), spreadOf(placed), spreadOf(repeated), spreadOf(waits)
	return s
}

func within60(values []float64) (n float64) {
	for _, v := range values {
		if v <= 60.001 {
			n++
		}
	}
	return n
}

// add adds the counts of one of n runs.
func (s *Summary) add(r *Result, n float64) {
	for cause, hours := range r.Lost {
		s.Lost[cause] += hours
	}
	for cause, hours := range r.RepeatedHours {
		s.RepeatedPercent[cause] += hours
	}
	s.GPUHours += r.GPUHours / n
	s.NodeFailures += float64(r.NodeFailures) / n
	s.Resumed += float64(r.Resumed) / n
	s.Often, s.OftenFound, s.OftenFalse = s.Often+float64(r.Often)/n, s.OftenFound+float64(r.OftenFound)/n, s.OftenFalse+float64(r.OftenFalse)/n
	s.Jobs += float64(r.Jobs) / n
	s.Preempted += float64(r.Preempted) / n
	s.Preemptors += float64(r.Preemptors) / n
	s.Drained += float64(r.Drained) / n
	s.Held, s.GangHeld, s.Failed, s.GangFailed = s.Held+r.Held, s.GangHeld+r.GangHeld, s.Failed+r.Failed, s.GangFailed+r.GangFailed
	s.NotStarted += r.NotStarted
	s.MostPreempt, s.MostDrained = max(s.MostPreempt, r.MostPreempted), max(s.MostDrained, r.MostDrained)
	s.Commands += r.Commands
}
