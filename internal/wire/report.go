package wire

import (
	"slices"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxBounds bounds the periods of one request.
const maxBounds = 1 << 10

// ReadBounds reads the bounds of periods: at least two, ascending, whole seconds.
func ReadBounds(p *greylagv1.Periods) (bounds []cluster.Instant, grace time.Duration, err error) {
	if n := len(p.GetBounds()); n < 2 || n > maxBounds {
		return nil, 0, refuse("%d bounds of periods, want 2 to %d", n, maxBounds)
	}
	for _, b := range p.GetBounds() {
		at, err := instant("a bound", b)
		switch {
		case err != nil:
			return nil, 0, err
		case at%cluster.Instant(time.Second) != 0:
			return nil, 0, refuse("the bound %s is not a whole second", at.Time().Format(time.RFC3339Nano))
		case len(bounds) > 0 && bounds[len(bounds)-1] >= at:
			return nil, 0, refuse("the bounds of periods do not ascend")
		}
		bounds = append(bounds, at)
	}
	grace, err = duration("grace", p.GetGrace())
	return bounds, grace, err
}

// WriteUsageRow writes the sums of one kind of jobs in a period.
func WriteUsageRow(period int, k tally.Key, t *tally.Tally) *greylagv1.UsageRow {
	row := &greylagv1.UsageRow{
		Period: uint32(period), Account: k.Account, User: k.User, Partition: k.Partition, Qos: k.QOS, GpuType: k.GPUType, Wckey: k.WCKey,
		Gpu: t.GPU, Cpu: t.CPU, Node: t.Node, Ended: slices.Clone(t.Ended[:]), Attempts: t.Attempts, Fault: t.Fault, Preempt: t.Preempt,
		CpuUsed: t.CPUUsed, CpuHeld: t.CPUHeld, MemUsed: t.MemUsed, MemHeld: t.MemHeld, Charged: t.Charged,
		Kept: t.Kept, Broken: t.Broken, Dropped: t.Dropped, GpuBusy: t.GPUBusy, GpuKnown: t.GPUKnown,
	}
	for bin, n := range t.Wait.Bins {
		row.WaitBins, row.WaitCounts = append(row.WaitBins, uint32(bin)), append(row.WaitCounts, n)
	}
	for _, c := range t.Causes {
		row.Causes = append(row.Causes, &greylagv1.BrokenCause{Cause: c.Why, Count: c.Count})
	}
	return row
}

// ReadUsageRow reads the form of WriteUsageRow.
func ReadUsageRow(row *greylagv1.UsageRow) (period int, k tally.Key, t *tally.Tally) {
	k = tally.Key{Account: row.GetAccount(), User: row.GetUser(), Partition: row.GetPartition(), QOS: row.GetQos(), GPUType: row.GetGpuType(), WCKey: row.GetWckey()}
	t = &tally.Tally{
		GPU: row.GetGpu(), CPU: row.GetCpu(), Node: row.GetNode(), Attempts: row.GetAttempts(), Fault: row.GetFault(), Preempt: row.GetPreempt(),
		CPUUsed: row.GetCpuUsed(), CPUHeld: row.GetCpuHeld(), MemUsed: row.GetMemUsed(), MemHeld: row.GetMemHeld(), Charged: row.GetCharged(),
		Kept: row.GetKept(), Broken: row.GetBroken(), Dropped: row.GetDropped(), GPUBusy: row.GetGpuBusy(), GPUKnown: row.GetGpuKnown(),
	}
	copy(t.Ended[:], row.GetEnded())
	for i, bin := range row.GetWaitBins() {
		if i < len(row.GetWaitCounts()) && bin <= tally.LastBin {
			t.Wait.Put(uint16(bin), row.GetWaitCounts()[i])
		}
	}
	for _, c := range row.GetCauses() {
		t.Causes = append(t.Causes, tally.Cause{Why: c.GetCause(), Count: c.GetCount()})
	}
	return int(row.GetPeriod()), k, t
}

// WriteEndedJob writes an ended job with the allocation of its last attempt, and its earlier
// attempts.
func WriteEndedJob(j *cluster.Job) *greylagv1.EndedJob {
	out := &greylagv1.EndedJob{Job: WriteJob(j), Attempts: writeAttempts(j)}
	for _, x := range j.TRES {
		out.Tres = append(out.Tres, &greylagv1.ResourceCount{Resource: x.Resource, Count: x.Count})
	}
	return out
}
