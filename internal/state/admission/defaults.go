package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/pkg/cluster"
)

// ApplyDefaults puts the policy's defaults into a specification and refuses what the policy
// does not allow. Each of several partitions must exist and admit the account; the limits of at
// least one must allow the job. The defaults are those of the first. old is the
// specification that an update changes; nil for a submission.
func (x *Checker) ApplyDefaults(spec, old *cluster.JobSpec, defaultTime bool) *command.Refusal {
	if refusal := x.setCloud(spec, old); refusal != nil {
		return refusal
	}
	part, known := x.Policy.Partition(spec.Partition)
	switch {
	case !known && spec.Partition == "":
		return command.Refuse(command.InvalidArgument, "there is no default partition", "choose one with --partition: "+accounts.PartitionNames(x.Policy))
	case !known:
		return command.WithHint(command.Refusef(command.InvalidArgument, "unknown partition %q", spec.Partition), "partitions: %s", accounts.PartitionNames(x.Policy))
	}
	spec.Partition = part.Name
	if refusal := x.chooseProfile(spec); refusal != nil {
		return refusal
	}
	if refusal := x.fillAccount(spec); refusal != nil {
		return refusal
	}
	if old == nil || spec.QOS != old.QOS || spec.Association() != old.Association() { // what runs goes on
		if refusal := x.fillQOS(spec); refusal != nil {
			return refusal
		}
	}
	qos, _ := x.Policy.QOSNamed(spec.QOS)
	if defaultTime {
		spec.TimeLimit = defaultTimeLimit(&qos, &part)
	}
	if old == nil && x.defaultBurst(spec, &qos, &part) { // an update moves no job to the cloud by itself
		return x.ApplyDefaults(spec, old, defaultTime)
	}
	if spec.Burst.On() {
		if refusal := x.checkCloud(spec); refusal != nil {
			return refusal
		}
	}
	if spec.Retry.Limit == cluster.DefaultRetry {
		spec.Retry = x.Policy.Retry
	}
	r := &spec.Request
	if old == nil || replaced(spec, old) {
		defaultMemory(r, &part)
	}
	if most := x.Policy.Scheduling.MaxSwitchWait; r.SwitchWait == cluster.SwitchDefault || r.SwitchWait > most {
		r.SwitchWait = most
	}
	if refusal := x.mayUse(spec); refusal != nil {
		return refusal
	}
	if refusal := x.withinLimits(spec); refusal != nil {
		return refusal
	}
	refusal := limited(spec, part, qos)
	for i := 0; refusal != nil && i < len(spec.OtherPartitions); i++ {
		if other, _ := x.Policy.Partition(spec.OtherPartitions[i]); limited(spec, other, qos) == nil {
			return nil
		}
	}
	return refusal
}

// defaultTimeLimit returns the time limit of a job that requests none; 0 means no limit.
func defaultTimeLimit(qos *cluster.QOS, part *cluster.Partition) time.Duration {
	limit := cmp.Or(qos.DefaultTime, part.DefaultTime, part.MaxTime)
	if part.MaxTime > 0 {
		limit = min(limit, part.MaxTime)
	}
	if qos.MaxTime > 0 && (limit == 0 || limit > qos.MaxTime) {
		limit = qos.MaxTime
	}
	return limit
}

// replaced reports whether an update moves a job to other partitions or changes how many
// nodes or GPUs it asks for, which only jobs that wait can.
func replaced(spec, old *cluster.JobSpec) bool {
	a, b := &spec.Request, &old.Request
	return !slices.Equal(spec.AllPartitions(), old.AllPartitions()) || a.Nodes != b.Nodes || a.GPUsPerNode != b.GPUsPerNode || a.GPUs != b.GPUs
}

// defaultMemory sets the memory of a request that names none: the defaults of its partition,
// like Slurm's DefMemPerGPU and DefMemPerCPU, or else its share of each node. It replaces
// the default of an earlier partition.
func defaultMemory(r *cluster.Request, part *cluster.Partition) {
	switch r.MemFrom {
	case cluster.MemoryAll:
		return
	case cluster.MemoryOfPartition:
		r.MemPerNode, r.MemPerCPU, r.MemPerGPU = 0, 0, 0
	}
	switch gpus := r.TotalGPUs() > 0; {
	case r.MemPerNode != 0 || r.MemPerCPU != 0 || r.MemPerGPU != 0:
		r.MemFrom = cluster.MemoryAsked
	case part.MemPerGPU > 0 && gpus:
		r.MemFrom, r.MemPerGPU = cluster.MemoryOfPartition, part.MemPerGPU/cluster.Bytes(max(r.Share.Jobs, 1))
	case part.MemPerCPU > 0:
		r.MemFrom, r.MemPerCPU = cluster.MemoryOfPartition, part.MemPerCPU
	case r.Exclusive:
		r.MemFrom = cluster.MemoryAll
	default:
		r.MemFrom = cluster.MemoryShare
	}
}

// refuseShare refuses a job that would share its GPU with more jobs than the partition allows.
func (x *Checker) refuseShare(n int32, part *cluster.Partition) *command.Refusal {
	refusal := command.Refusef(command.Denied, "%s", part.RefuseShare(n))
	var others []string
	for i := range x.Policy.Partitions {
		if p := &x.Policy.Partitions[i]; p.GPUShare >= n {
			others = append(others, p.Name)
		}
	}
	switch {
	case len(others) > 0:
		return command.WithHint(refusal, "use --partition=%s", strings.Join(others, ","))
	case part.GPUShare > 0:
		return command.WithHint(refusal, "use --gpu-share=%d", part.GPUShare)
	}
	return command.WithHint(refusal, "omit --gpu-share: no partition allows it")
}

// mayUse refuses partitions, licences and reservations that do not exist or do not admit the
// job.
func (x *Checker) mayUse(spec *cluster.JobSpec) *command.Refusal {
	for i := range 1 + len(spec.OtherPartitions) {
		name := spec.Partition
		if i > 0 {
			name = spec.OtherPartitions[i-1]
		}
		part, known := x.Policy.Partition(name)
		if !known {
			return command.WithHint(command.Refusef(command.InvalidArgument, "unknown partition %q", name), "partitions: %s", accounts.PartitionNames(x.Policy))
		}
		if !part.Allows(spec.Account) {
			return command.WithHint(command.Refusef(command.Denied, "account %q may not use partition %q", spec.Account, part.Name), "its accounts: %s", strings.Join(part.AllowAccounts, ", "))
		}
		if n := spec.Request.Share.Jobs; n > part.GPUShare {
			return x.refuseShare(n, &part)
		}
	}
	for _, l := range spec.Request.Licences {
		switch n, known := x.Policy.Scheduling.Licence(l.Name); {
		case !known:
			return command.WithHint(command.Refusef(command.InvalidArgument, "there is no licence %q", l.Name), "licences: %s", x.licenceNames())
		case l.Count > n:
			return command.WithHint(command.Refusef(command.InvalidArgument, "there are %d licences %s, the job requests %d", n, l.Name, l.Count), "request at most %s:%d with --licenses", l.Name, n)
		}
	}
	if spec.Reservation == "" {
		return nil
	}
	switch r, known := x.Policy.Scheduling.Reservation(spec.Reservation); {
	case !known:
		return command.Refuse(command.InvalidArgument, fmt.Sprintf("there is no reservation %q", spec.Reservation), "gctl show reservations lists them")
	case r.End <= x.Now:
		return command.Refuse(command.InvalidArgument, fmt.Sprintf("reservation %q has ended", r.Name), "omit --reservation")
	case !r.Admits(spec.Owner.User, spec.Account):
		return command.Refusef(command.Denied, "reservation %q is not for user %s or account %q", r.Name, spec.Owner.User, spec.Account)
	}
	return nil
}

// CheckReservation refuses a time limit for which the job's reservation is too short whenever the
// job starts: it would never start.
func (x *Checker) CheckReservation(spec *cluster.JobSpec) *command.Refusal {
	r, known := x.Policy.Scheduling.Reservation(spec.Reservation)
	if !known {
		return nil
	}
	grace := eligible.Grace(x.Policy)
	longest, why := x.openFor(r, max(x.Now, r.Start, spec.Begin))
	left := longest - grace
	if spec.TimeLimit > 0 && spec.TimeLimit <= left {
		return nil
	}
	const form = "2006-01-02T15:04:05Z"
	refusal := command.Refusef(command.InvalidArgument, "the time limit %s plus %s of cleanup exceeds the rest of reservation %q, from %s to %s%s", cluster.FormatLimit(spec.TimeLimit),
		cluster.FormatElapsed(grace), r.Name, r.Start.Time().UTC().Format(form), r.End.Time().UTC().Format(form), why)
	if left = left.Truncate(time.Minute); left <= 0 {
		return command.WithHint(refusal, "omit --reservation")
	}
	return command.WithHint(refusal, "request at most --time=%s", cluster.FormatLimit(left))
}

// openFor returns the longest time after an instant in which no maintenance has all nodes of a
// reservation, and the maintenance windows that bound it, as part of a sentence.
// O(reservations × nodes).
func (x *Checker) openFor(r *cluster.Reservation, from cluster.Instant) (longest time.Duration, why string) {
	all := x.Index.Reservations()
	at := slices.IndexFunc(all, func(k Reservation) bool { return k.Name == r.Name })
	var over []*cluster.Reservation
	for i := range all {
		k := &all[i]
		closed := func() (closed bool) {
			for name := range x.Nodes.All() {
				if all[at].Has(name) {
					if closed = k.Has(name); !closed {
						return false
					}
				}
			}
			return closed
		}
		if at >= 0 && k.Maintenance() && !r.Maintenance() && k.Start < r.End && k.End > from && closed() {
			over = append(over, k.Reservation)
		}
	}
	slices.SortFunc(over, func(a, b *cluster.Reservation) int { return cmp.Compare(a.Start, b.Start) })
	for _, k := range over {
		longest, from = max(longest, k.Start.Sub(from)), max(from, k.End)
		why += fmt.Sprintf(", without maintenance %q", k.Name)
	}
	return max(longest, r.End.Sub(from)), why
}

// limited refuses a job beyond the limits of a partition or of the QOS.
func limited(spec *cluster.JobSpec, part cluster.Partition, qos cluster.QOS) *command.Refusal {
	most := spec.Request.Nodes
	if spec.Elastic.On() {
		most = spec.Request.MaxNodes
	}
	if part.MaxNodes > 0 && most > part.MaxNodes {
		return command.WithHint(command.Refusef(command.InvalidArgument, "partition %q gives a job at most %s, not %d", part.Name, words.Count(part.MaxNodes, "node"), most), "request at most %d with --nodes", part.MaxNodes)
	}
	return checkTime(spec, part, qos)
}

// checkTime compares the time limit with those of the partition and the QOS.
func checkTime(spec *cluster.JobSpec, part cluster.Partition, qos cluster.QOS) *command.Refusal {
	for _, most := range []struct {
		what string
		time int64
	}{{"partition " + part.Name, int64(part.MaxTime)}, {"qos " + qos.Name, int64(qos.MaxTime)}} {
		if most.time > 0 && (spec.TimeLimit == 0 || int64(spec.TimeLimit) > most.time) {
			limit := cluster.FormatLimit(cluster.Instant(most.time).Sub(0))
			return command.WithHint(command.Refusef(command.InvalidArgument, "the time limit %s is above that of %s, %s", cluster.FormatLimit(spec.TimeLimit), most.what, limit), "request at most --time=%s", limit)
		}
	}
	return nil
}

func (x *Checker) licenceNames() string {
	names := make([]string, 0, len(x.Policy.Scheduling.Licences))
	for _, l := range x.Policy.Scheduling.Licences {
		names = append(names, fmt.Sprintf("%s (%d)", l.Name, l.Count))
	}
	if len(names) == 0 {
		return "none are set up"
	}
	return strings.Join(names, ", ")
}
