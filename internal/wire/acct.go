package wire

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// WritePast writes a job, and if the caller may see all of it the costs of its attempts. The caller
// must have removed hidden fields before.
func WritePast(j *cluster.Job, whole bool) *greylagv1.PastJob {
	p := &greylagv1.PastJob{Job: WriteJob(j), Tres: writeTRES(j.TRES)}
	if whole {
		p.Charged, p.Attempts = proto.Int64(j.Charged), writeAttempts(j)
	}
	return p
}

// writeAttempts writes the earlier attempts of a job.
func writeAttempts(j *cluster.Job) (list []*greylagv1.PastAttempt) {
	for i := range j.Attempts {
		a := &j.Attempts[i]
		past := &greylagv1.PastAttempt{
			Attempt: uint32(a.Attempt), Started: Timestamp(a.Started), Ended: Timestamp(a.Ended),
			Outcome: greylagv1.JobState(a.Outcome), Tres: writeTRES(a.TRES), Partition: a.Partition, Account: a.Account, Qos: a.QOS, Detail: a.Detail,
			Nodes: a.Nodes, ExitCode: a.Exit.Code, ExitSignal: a.Exit.Signal, Held: writeHeld(a.Held),
		}
		past.GpuBusyMs, past.GpuKnownMs, past.GpuMemoryPeakBytes = a.GPU.BusyMs, a.GPU.KnownMs, heldPeak(a.GPU)
		if a.CPUTime != 0 {
			past.CpuTime = durationpb.New(a.CPUTime)
		}
		if a.User != 0 {
			past.UserTime = durationpb.New(a.User)
		}
		list = append(list, past)
	}
	return list
}

func writeTRES(amounts []cluster.Amount) []*greylagv1.ResourceCount {
	list := make([]*greylagv1.ResourceCount, len(amounts))
	for i, a := range amounts {
		list[i] = &greylagv1.ResourceCount{Resource: a.Resource, Count: a.Count}
	}
	return list
}

// ReadInterval reads the bounds of a question; 0 is unbounded.
func ReadInterval(p *greylagv1.StreamHistoryRequest) (since, until cluster.Instant, err error) {
	if since, err = instant("since", p.GetSince()); err != nil {
		return 0, 0, err
	}
	if until, err = instant("until", p.GetUntil()); err != nil {
		return 0, 0, err
	}
	if until != 0 && until < since {
		return 0, 0, refuse("the interval ends before it begins")
	}
	return since, until, nil
}
