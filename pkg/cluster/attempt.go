package cluster

import "time"

// AttemptRecord is one attempt of a job: what it had, for how long, and how it ended.
type AttemptRecord struct {
	Attempt   Attempt
	Partition string
	Started   Instant
	Ended     Instant // when its end was decided
	Outcome   JobState
	TRES      []Amount
	CPUTime   time.Duration // user and system, of all its tasks
	Account   string        // for which it ran, whatever the job is changed to later; "": not noted
	QOS       string        // likewise
	GPU       GPUUse        // of all its GPUs
	User      time.Duration // of CPUTime the user time; 0 where that is not known
}

// maxAttempts is how many earlier attempts of a job are kept.
const maxAttempts = 16

// Attempted returns the earlier attempts with one more, the newest 16 of them, in
// memory of their own.
func Attempted(earlier []AttemptRecord, r AttemptRecord) []AttemptRecord {
	from := max(0, len(earlier)+1-maxAttempts)
	return append(append(make([]AttemptRecord, 0, len(earlier)-from+1), earlier[from:]...), r)
}

// ThisAttempt is the attempt that the job makes now or made last. O(nodes).
func (j *Job) ThisAttempt() AttemptRecord {
	r := AttemptRecord{Attempt: j.Attempt, Partition: j.Partition, Started: j.Started, Ended: j.Ended, Outcome: j.Outcome, TRES: j.TRES}
	if j.Spec != nil {
		r.Account, r.QOS = j.Spec.Account, j.Spec.QOS
	}
	if j.State.Final() {
		r.Outcome = j.State
	}
	for i := range j.Tasks {
		r.CPUTime += j.Tasks[i].CPUTime
		r.User += j.Tasks[i].User
		r.GPU = r.GPU.Plus(j.Tasks[i].GPU)
	}
	return r
}
