package acct

import (
	"cmp"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// row is one line: a job with its last attempt, or an earlier attempt of it.
type row struct {
	*greylagv1.Job
	past    *greylagv1.PastJob
	earlier *greylagv1.PastAttempt // nil: the last one
	in      *setting

	start, end time.Time // zero: not yet
	again      time.Time // when the attempt before ended; zero: it is the first
	elapsed    time.Duration
	tres       []*greylagv1.ResourceCount
	step       string // of a step: batch, 0, 1, ...; "" for the job
	title      string // name of a step that grun started
	taskCount  int64  // of a step
}

// setting is what is the same for all rows of one answer.
type setting struct {
	now          time.Time
	cluster      string
	since, until time.Time // to which times are cut; zero: they are not
	unit         byte      // of sizes; 0: as is usual
	groups       map[uint32]string
	slurm        *Slurm // nil for gctl acct
}

// rowOf makes the line of a job, or of an earlier attempt of it.
func (c *setting) rowOf(p *greylagv1.PastJob, earlier *greylagv1.PastAttempt) *row {
	r := &row{Job: p.Job, past: p, earlier: earlier, in: c, tres: p.Tres}
	started, ended := p.Job.Started, p.Job.Ended
	if earlier != nil {
		started, ended, r.tres = earlier.Started, earlier.Ended, earlier.Tres
	}
	for _, before := range p.Attempts {
		if before == earlier {
			break
		}
		r.again = timeOf(before.Ended)
	}
	r.start, r.end = c.cut(timeOf(started)), c.cut(timeOf(ended))
	if !r.start.IsZero() {
		r.elapsed = r.until().Sub(r.start).Truncate(time.Second)
	}
	return r
}

// cut brings a time into the interval, if times are cut.
func (c *setting) cut(t time.Time) time.Time {
	switch {
	case t.IsZero():
	case !c.since.IsZero() && t.Before(c.since):
		t = c.since
	case !c.until.IsZero() && t.After(c.until):
		t = c.until
	}
	return t
}

// until is when it ended, or now.
func (r *row) until() time.Time {
	if !r.end.IsZero() {
		return r.end
	}
	if now := r.in.cut(r.in.now); now.After(r.start) {
		return now
	}
	return r.start
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// over reports whether nothing more happens to it.
func (r *row) over() bool {
	state, err := cluster.ParseJobState(wire.Word(r.State))
	return r.earlier != nil || err == nil && state.Final()
}

// state is sacct's word, which names who cancelled it.
func (r *row) state() string {
	switch {
	case r.in.slurm != nil:
		return r.in.slurm.state(r)
	case r.earlier != nil && wire.Word(r.earlier.Outcome) == cluster.Cancelled.String(): // by gctl requeue
		return "REQUEUED"
	case r.earlier != nil:
		return wire.Word(r.earlier.Outcome)
	case r.Requester != "" && r.State == greylagv1.JobState_JOB_STATE_CANCELLED:
		return wire.Word(r.State) + " by " + r.Requester
	}
	return wire.Word(r.State)
}

// has is how much of a resource it had; 0 when it never ran.
func (r *row) has(resource string) int64 {
	for _, t := range r.tres {
		if t.Resource == resource {
			return t.Count
		}
	}
	return 0
}

// cpus is how many CPUs it had. Of a job from before amounts were kept its nodes say so.
func (r *row) cpus() int64 {
	if n := r.has(cluster.ResourceCPU); n > 0 || r.earlier != nil {
		return n
	}
	n := int64(0)
	for _, node := range r.Nodes {
		n += int64(node.Cpus)
	}
	return n
}

// request is what it asked for, as the scheduler counts it.
func (r *row) request() *cluster.Request {
	q := r.Request
	out := &cluster.Request{
		Nodes: q.GetNodes(), GPUsPerNode: q.GetGpusPerNode(), GPUs: q.GetGpus(), GPUTypes: q.GetGpuTypes(),
		TasksPerNode: max(q.GetTasksPerNode(), 1), CPUsPerTask: max(q.GetCpusPerTask(), 1),
		MemPerNode: cluster.Bytes(q.GetMemPerNode()), MemPerCPU: cluster.Bytes(q.GetMemPerCpu()), MemPerGPU: cluster.Bytes(q.GetMemPerGpu()),
	}
	for _, g := range q.GetGres() {
		out.Gres = append(out.Gres, cluster.Gres{Name: g.Name, Type: g.Type, Count: g.Count})
	}
	for _, l := range q.GetLicences() {
		out.Licences = append(out.Licences, cluster.Licence{Name: l.Name, Count: l.Count})
	}
	return out
}

// asked are the resources it asked for.
func (r *row) asked() []*greylagv1.ResourceCount {
	q := r.request()
	names := []string{cluster.ResourceCPU, cluster.ResourceGPU, cluster.ResourceMem, cluster.ResourceNode}
	if len(q.GPUTypes) == 1 {
		names = append(names, "gpu:"+q.GPUTypes[0])
	}
	for _, g := range q.Gres {
		names = append(names, cluster.GresResource(g.Name))
	}
	for _, l := range q.Licences {
		names = append(names, "licence:"+l.Name)
	}
	var list []*greylagv1.ResourceCount
	for _, name := range names {
		if n := q.Requested(name); n > 0 {
			list = append(list, &greylagv1.ResourceCount{Resource: name, Count: n})
		}
	}
	return list
}

// tresText writes amounts as Slurm does: cpu=4,gres/gpu:h100=2,gres/gpu=2,mem=16G,node=1.
func tresText(list []*greylagv1.ResourceCount, unit byte) string {
	words := make([]string, 0, len(list))
	for _, t := range list {
		name, count := t.Resource, strconv.FormatInt(t.Count, 10)
		switch rest, licence := strings.CutPrefix(name, "licence:"); {
		case licence:
			name = "license/" + rest
		case name == cluster.ResourceGPU || strings.HasPrefix(name, cluster.ResourceGPU+":"):
			name = "gres/" + name
		case name == cluster.ResourceMem:
			if count += "M"; unit != Unconverted {
				count = sizeText(cluster.Bytes(t.Count)*cluster.MiB, 0)
			}
		}
		words = append(words, name+"="+count)
	}
	slices.Sort(words)
	return strings.Join(words, ",")
}

// sizeText writes a size in a unit with two digits behind the point, and with unit 0 in
// the largest unit that gives a whole number.
func sizeText(b cluster.Bytes, unit byte) string {
	const units = "KMGTP"
	if unit == Unconverted {
		return strconv.FormatInt(int64((b+cluster.MiB-1)/cluster.MiB), 10) + "M"
	}
	if i := strings.IndexByte(units, unit); unit != 0 && i >= 0 {
		return strconv.FormatFloat(float64(b)/float64(int64(1)<<(10*(i+1))), 'f', 2, 64) + units[i:i+1]
	}
	n, i := int64((b+cluster.KiB-1)/cluster.KiB), 0
	for ; n != 0 && n%1024 == 0 && i < len(units)-1; i++ {
		n /= 1024
	}
	if n == 0 {
		return "0"
	}
	return strconv.FormatInt(n, 10) + units[i:i+1]
}

// lengthText writes a length of time as [days-]hh:mm:ss.
func lengthText(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	text := fmt.Sprintf("%02d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if days := s / 86400; days > 0 {
		return strconv.FormatInt(days, 10) + "-" + text
	}
	return text
}

// cpuText writes CPU time as [[days-]hh:]mm:ss, with milliseconds below an hour.
func cpuText(d time.Duration) string {
	if d >= time.Hour {
		return lengthText(d)
	}
	ms := int64(max(d, 0) / time.Millisecond)
	return fmt.Sprintf("%02d:%02d.%03d", ms/60000, ms/1000%60, ms%1000)
}

// partText writes a part of the CPU time; nothing where it is not known how that is divided.
func (r *row) partText(d time.Duration) string {
	if r.userTime() == 0 && r.cpuTime() > 0 {
		return ""
	}
	return cpuText(d)
}

// moment writes a time; absent stands for none.
func (r *row) moment(t time.Time, absent string) string {
	switch {
	case t.IsZero():
		return absent
	case r.in.slurm != nil:
		return r.in.slurm.Time(t)
	}
	return t.In(r.in.now.Location()).Format(ui.TimeLayout)
}

// startText and endText are sacct's, whose words for no time differ.
func (r *row) startText() string {
	if r.over() {
		return r.moment(r.start, "None")
	}
	return r.moment(r.start, "Unknown")
}

// eligible is when it could have started: not before its submission, its begin time, the
// end of the attempt before and the pause after that.
func (r *row) eligible() time.Time {
	t := timeOf(r.Submitted)
	for _, later := range []time.Time{timeOf(r.Begin), r.again, timeOf(r.Eligible)} {
		if later.After(t) && (r.start.IsZero() || !later.After(r.start)) {
			t = later
		}
	}
	return r.in.cut(t)
}

// waited is how long it waited for its start.
func (r *row) waited() time.Duration {
	if r.eligible().IsZero() {
		return 0
	}
	end := r.start
	if end.IsZero() {
		end = r.until()
	}
	return max(end.Sub(r.eligible()), 0).Truncate(time.Second)
}

// cpuHeld is how long it had its CPUs, in milliseconds: their number multiplied by the time.
func (r *row) cpuHeld() int64 {
	plain := r.elapsed.Milliseconds() * r.cpus()
	whole, end := timeOf(r.Job.GetStarted()), timeOf(r.Job.GetEnded())
	if end.IsZero() {
		end = r.in.now
	}
	held, resized := int64(0), false
	switch a := r.earlier; {
	case r.step != "":
	case a == nil:
		held, resized = ui.CPUMillis(r.Job, whole.Add(end.Sub(whole).Truncate(time.Second)))
	case a.Held != nil:
		held, resized = a.Held.CpuMs, true
		whole, end = timeOf(a.Started), timeOf(a.Ended)
	}
	if !resized {
		return plain
	}
	if length := end.Sub(whole).Truncate(time.Second); r.elapsed < length { // cut: its share of the time
		return int64(float64(held) * r.elapsed.Seconds() / length.Seconds())
	}
	return held
}

// cpuTime is the processor time of all its tasks.
func (r *row) cpuTime() time.Duration {
	if r.earlier != nil {
		return r.earlier.CpuTime.AsDuration()
	}
	var sum time.Duration
	if r.step == "" {
		sum = r.Members.GetLeft().GetCpuTime().AsDuration()
	}
	for _, t := range r.Tasks {
		sum += t.CpuTime.AsDuration()
	}
	return sum
}

// userTime is what of cpuTime was user time; 0 where nodes did not say.
func (r *row) userTime() time.Duration {
	if r.earlier != nil {
		return r.earlier.UserTime.AsDuration()
	}
	var sum time.Duration
	if r.step == "" {
		sum = r.Members.GetLeft().GetUserTime().AsDuration()
	}
	for _, t := range r.Tasks {
		sum += t.UserTime.AsDuration()
	}
	return sum
}

// nodes are the nodes that it had, in sacct's words when there were none.
func (r *row) nodes() string {
	if r.earlier != nil {
		if r.step != "" && strings.ContainsAny(r.earlier.Nodes, ",[") { // the node of its script is not recorded
			return ""
		}
		return r.earlier.Nodes
	}
	if len(r.Nodes) == 0 {
		return "None assigned"
	}
	names := make([]string, len(r.Nodes))
	for i, n := range r.Nodes {
		names[i] = n.Node
	}
	return hostlist.Compress(names)
}

func (r *row) nodeCount() int64 {
	switch n := r.has(cluster.ResourceNode); {
	case n > 0:
		return n
	case r.earlier == nil && len(r.Nodes) > 0:
		return int64(len(r.Nodes))
	}
	return int64(max(r.Request.GetNodes(), 1))
}

// partition is where it ran, or where it waits.
func (r *row) partition() string {
	if r.earlier != nil {
		return r.earlier.Partition
	}
	return r.Partition
}

// tasks are those of the attempt; of an earlier one they are not kept.
func (r *row) tasks() []*greylagv1.Task {
	if r.earlier != nil {
		return nil
	}
	return r.Tasks
}

// extreme is the task that comes last in an order, and its rank; nil without tasks.
func (r *row) extreme(order func(a, b *greylagv1.Task) int) (*greylagv1.Task, int) {
	var best *greylagv1.Task
	rank := 0
	for i, t := range r.tasks() {
		if best == nil || order(t, best) > 0 {
			best, rank = t, i
		}
	}
	return best, rank
}

func byMemory(a, b *greylagv1.Task) int { return cmp.Compare(a.MemoryPeak, b.MemoryPeak) }
func byIdleness(a, b *greylagv1.Task) int {
	return cmp.Compare(b.CpuTime.AsDuration(), a.CpuTime.AsDuration())
}

// exit is code:signal of the job.
func (r *row) exit() string {
	switch a := r.earlier; {
	case a == nil:
		return fmt.Sprintf("%d:%d", r.ExitCode, r.ExitSignal)
	case a.Nodes == "" && a.ExitCode == 0 && a.ExitSignal == 0: // not recorded
		return ""
	default:
		return fmt.Sprintf("%d:%d", a.ExitCode, a.ExitSignal)
	}
}

// worstExit is code:signal of the task with the highest code.
func (r *row) worstExit() string {
	worst, _ := r.extreme(func(a, b *greylagv1.Task) int {
		return cmp.Or(cmp.Compare(a.ExitCode, b.ExitCode), cmp.Compare(a.ExitSignal, b.ExitSignal))
	})
	if worst == nil {
		return "0:0"
	}
	return fmt.Sprintf("%d:%d", worst.ExitCode, worst.ExitSignal)
}

// group is the name of the group on this host, else its number.
func (r *row) group() string {
	name, known := r.in.groups[r.Gid]
	if !known {
		name = strconv.FormatUint(uint64(r.Gid), 10)
		if g, err := user.LookupGroupId(name); err == nil {
			name = g.Name
		}
		r.in.groups[r.Gid] = name
	}
	return name
}

// resident writes a peak of memory: whole KiB, unless another unit is asked for.
func (r *row) resident(bytes int64) string {
	switch unit := r.in.unit; {
	case len(r.tasks()) == 0:
		return ""
	case unit != 0 && unit != Unconverted:
		return sizeText(cluster.Bytes(bytes), unit)
	}
	return strconv.FormatInt((bytes+1023)/1024, 10) + "K"
}

func (r *row) rankOf(t *greylagv1.Task, rank int) string {
	if t == nil {
		return ""
	}
	return strconv.Itoa(rank)
}
