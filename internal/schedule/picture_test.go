package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// start is the instant of every picture.
var start = cluster.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// picture is a cluster drawn in text, one thing a line:
//
//	node NAME [gpus=N] [type=T, or one for each] [domain=D] [cpus=N] [mem=16G] [features=a,b] [down] [drain] [bad=I,J] [gres=nvme:2] [failures=N]
//	partition NAME [nodes=LIST] [prio=N] [maxtime=D] [maxnodes=N] [gpushare=N] [down]
//	qos NAME [tier=N] [prio=N] [preempts=Q,R] [mode=requeue|cancel] [exempt=D]
//	run ID on=NODE:GPUS[,NODE:GPUS] [cpus=N] [mem=SIZE] [left=D] [ran=D] [saved=D ago] [writes=D: a checkpoint on a signal] [preempted=D,D ago] [array=ID] and what a job has
//	job ID [nodes=N] [gpus=N per node] [total=N] [type=T,U] [cpus=N] [mem=SIZE] [limit=D] [user=U] [name=N]
//	    [qos=Q] [part=P] [nice=N] [after=D] [begin=D] [deadline=D] [hold=user|admin] [array=ID:INDEX] [atmost=N]
//	    [dep=KIND:REF[+D]] [only=LIST] [not=LIST] [has=FEATURE] [alone] [attempt=N] [reason=R]
//	ended ID STATE [began=D] [over=D] [unstarted]
//	switch NAME [nodes=LIST] [under=SWITCHES]
//	rules . [depth=N] [window=D] [horizon=D] [replan=D] [packed] [exempt=D] [preemptions=N] [killwait=D]
//	weights . [age=N] [maxage=D] [size=N] [qos=N]; those that are not named are 0
//	reservation NAME nodes=LIST [from=D] [to=D] [user=U]
//	licence NAME count=N
//	price TYPE is=N [from=D]
//
// An elastic job has [step=N]; one that runs also [resized=D ago] [leaves=NODES]. Its nodes beyond nodes=N are extra ones.
//
// Cloud nodes:
//
//	node cloud-ID ... lease=ACCOUNT [for=JOB] [until=D] [market=spot|on-demand]
//	burst . [off] [pending=D] [boottime=D] [most=N nodes] [regions=R,S] [patience=D] [left=AMOUNT] [ACCOUNT=AMOUNT, its budget]
//	offer NAME price=AMOUNT [market=M] [at=REGION] [gpus=N] [type=T] [cpus=N] [mem=SIZE] [boot=D] [age=D] [risk=MILLIONTHS] [paused=D] [failing=D]
//	lease ID for=JOB [state=S] [market=M] [since=D ago]
//
// A QOS may have [worth=AMOUNT an hour] [longest=D] [ondemand=PERCENT], and a job [burst=allow|only] [cost=AMOUNT]
// [at=REGIONS] [market=M].
//
// A job may also have [connect=WORD] [switches=N] [late=D] [gpumin=SIZE] [licence=NAME:N] [in=RESERVATION] [or=PARTITIONS]
// [region=R,S] [price=N] [most=N nodes] [gres=NAME:TYPE:N,NAME:N] [avoids=NODES] [crashed] [share=N] [mps]; a node [region=R].
type picture struct {
	snap   cluster.Snapshot
	ended  map[cluster.JobID]*cluster.Job
	arrays map[cluster.JobID][]cluster.JobID // with the indices 0, 1, 2, ...
}

type words map[string]string

func (w words) n(key string, absent int32) int32 {
	if v, ok := w[key]; ok {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			panic(err)
		}
		return int32(n)
	}
	return absent
}

func (w words) d(key string, absent time.Duration) time.Duration {
	if v, ok := w[key]; ok {
		d, err := time.ParseDuration(v)
		if err != nil {
			panic(err)
		}
		return d
	}
	return absent
}

func (w words) size(key string) cluster.Bytes {
	if v, ok := w[key]; ok {
		b, err := cluster.ParseBytes(v, cluster.GiB)
		if err != nil {
			panic(err)
		}
		return b
	}
	return 0
}

func (w words) list(key string) []string {
	if v, ok := w[key]; ok {
		return strings.Split(v, ",")
	}
	return nil
}

func (w words) has(key string) bool { _, ok := w[key]; return ok }

func draw(t testing.TB, text string) *cluster.Snapshot {
	t.Helper()
	policy := cluster.DefaultPolicy()
	policy.KillWait = 0
	policy.Partitions, policy.QOS = nil, policy.QOS[2:3]
	p := &picture{ended: map[cluster.JobID]*cluster.Job{}, arrays: map[cluster.JobID][]cluster.JobID{}}
	p.snap = cluster.Snapshot{Index: 9, Now: start, Policy: &policy}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		w := words{}
		for _, f := range fields[2:] {
			k, v, _ := strings.Cut(f, "=")
			w[k] = v
		}
		p.line(t, fields, w)
	}
	if len(policy.Partitions) == 0 {
		policy.Partitions = cluster.DefaultPolicy().Partitions
		policy.Partitions[0].GPUShare = cluster.MaxGPUShare
	}
	p.snap.Ended = func(id cluster.JobID) *cluster.Job { return p.ended[id] }
	p.snap.Elements = func(id cluster.JobID) (cluster.JobID, int32, bool) {
		ids, ok := p.arrays[id]
		if !ok {
			return 0, 0, false
		}
		return slices.Min(ids), int32(len(ids)), true
	}
	p.snap.Element = func(id cluster.JobID, index int32) (cluster.JobID, bool) {
		ids := slices.Sorted(slices.Values(p.arrays[id]))
		if index < 0 || int(index) >= len(ids) {
			return 0, false
		}
		return ids[index], true
	}
	slices.SortFunc(p.snap.Nodes, func(a, b *cluster.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, list := range [][]*cluster.Job{p.snap.Active, p.snap.Pending} {
		slices.SortFunc(list, func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) })
	}
	return &p.snap
}

func (p *picture) line(t testing.TB, fields []string, w words) {
	t.Helper()
	switch fields[0] {
	case "node":
		p.snap.Nodes = append(p.snap.Nodes, node(fields[1], w))
	case "partition":
		part := cluster.Partition{
			Name: fields[1], Nodes: []string{"ALL"}, Default: len(p.snap.Policy.Partitions) == 0,
			Priority: w.n("prio", 0), MaxTime: w.d("maxtime", 0), MaxNodes: w.n("maxnodes", 0), Down: w.has("down"),
			AllowAccounts: w.list("accounts"), GPUShare: w.n("gpushare", cluster.MaxGPUShare),
		}
		if w.has("nodes") {
			part.Nodes = []string{w["nodes"]}
		}
		p.snap.Policy.Partitions = append(p.snap.Policy.Partitions, part)
	case "qos":
		p.snap.Policy.QOS = append(p.snap.Policy.QOS, qos(fields[1], w))
	case "ended":
		state, err := cluster.ParseJobState(fields[2])
		if err != nil {
			t.Fatal(err)
		}
		p.ended[id(fields[1])] = &cluster.Job{ID: id(fields[1]), State: state, Started: start.Add(w.d("began", -time.Hour)), Ended: start.Add(w.d("over", -time.Minute))}
		if w.has("unstarted") {
			p.ended[id(fields[1])].Started = 0
		}
		if w.has("array") {
			p.arrays[id(w["array"])] = append(p.arrays[id(w["array"])], id(fields[1]))
		}
	case "switch":
		s := cluster.Switch{Name: fields[1], Children: w.list("under")}
		if w.has("nodes") {
			names, err := hostlist.Expand(w["nodes"])
			if err != nil {
				t.Fatal(err)
			}
			s.Nodes = names
		}
		p.snap.Switches = append(p.snap.Switches, s)
	case "burst", "offer", "lease":
		p.cloud(t, fields, w)
	case "rules", "weights", "reservation", "licence":
		p.rule(fields, w)
	case "price":
		p.snap.Prices = append(p.snap.Prices, cluster.Price{Type: fields[1], Hour: int64(w.n("is", 0)), From: start.Add(w.d("from", 0))})
	case "run", "job":
		p.job(t, fields, w)
	default:
		t.Fatalf("unknown line %q", fields)
	}
}

func qos(name string, w words) cluster.QOS {
	mode, _ := cluster.ParsePreemptMode(w["mode"])
	return cluster.QOS{
		BurstValue: w.money("worth"), BurstMaxWait: w.d("longest", 0), MinOnDemand: w.n("ondemand", 0),
		Name: name, Tier: w.n("tier", 0), Priority: w.n("prio", 0), Preempts: w.list("preempts"), PreemptMode: mode, PreemptExempt: w.d("exempt", 0), Open: !w.has("closed"),
	}
}

// rule reads a line of the scheduler's policy.
func (p *picture) rule(fields []string, w words) {
	rules := &p.snap.Policy.Scheduling
	switch fields[0] {
	case "rules":
		rules.Depth, rules.Window = w.n("depth", rules.Depth), w.d("window", rules.Window)
		rules.PromiseHorizon, rules.Packed = w.d("horizon", rules.PromiseHorizon), w.has("packed")
		rules.Replan = w.d("replan", rules.Replan)
		policy := p.snap.Policy
		policy.PreemptExempt, policy.MaxPreemptions = w.d("exempt", policy.PreemptExempt), w.n("preemptions", policy.MaxPreemptions)
		policy.KillWait, policy.PreemptGrace = w.d("killwait", policy.KillWait), w.d("grace", policy.PreemptGrace)
	case "weights":
		rules.Weights = cluster.Weights{
			Age: int64(w.n("age", 0)), MaxAge: w.d("maxage", 0), JobSize: int64(w.n("size", 0)), QOS: int64(w.n("qos", 0)),
		}
	case "reservation":
		rules.Reservations = append(rules.Reservations, cluster.Reservation{
			Name: fields[1], Nodes: []string{w["nodes"]}, Users: w.list("user"),
			Start: start.Add(w.d("from", 0)), End: start.Add(w.d("to", 24*time.Hour)),
		})
	case "licence":
		rules.Licences = append(rules.Licences, cluster.Licence{Name: fields[1], Count: w.n("count", 1)})
	}
}

// readRequest reads what a job requests beyond nodes and GPUs.
func readRequest(t testing.TB, spec *cluster.JobSpec, w words) {
	t.Helper()
	q := &spec.Request
	q.Switches, q.SwitchWait, q.GPUMemory = w.n("switches", 0), -1, w.size("gpumin")
	if w.has("late") {
		q.SwitchWait = w.d("late", 0)
	}
	if w.has("connect") {
		c, ok := cluster.ParseConnect(w["connect"])
		if !ok {
			t.Fatal(w["connect"])
		}
		q.Connect = c
	}
	if name, count, ok := strings.Cut(w["licence"], ":"); ok {
		q.Licences = []cluster.Licence{{Name: name, Count: words{"n": count}.n("n", 1)}}
	}
	q.Gres = gresIn(w)
	q.Share = cluster.GPUShare{Jobs: w.n("share", 0), MPS: w.has("mps")}
	spec.OtherPartitions, spec.Reservation = w.list("or"), w["in"]
	readBurst(t, spec, w)
	q.Regions, q.MaxPrice = w.list("region"), int64(w.n("price", 0))
	if q.Switches == 0 && q.Connect == cluster.ConnectAny {
		q.SwitchWait = 0
	}
}

func node(name string, w words) *cluster.Node {
	n := &cluster.Node{
		Name: name, CPUs: w.n("cpus", 64), Memory: w.size("mem"), Features: w.list("features"), Drain: w.has("drain"), Region: w["region"],
		Gres: gresIn(w),
	}
	if n.Memory == 0 {
		n.Memory = 512 * cluster.GiB
	}
	if w.has("down") {
		n.Liveness = cluster.Dead
	}
	for i := range w.n("failures", 0) { // one a day
		n.Failures = append(n.Failures, cluster.NodeFailure{At: start.Add(time.Duration(i-w.n("failures", 0)) * 24 * time.Hour)})
	}
	if w.has("lease") {
		leaseNode(n, w)
	}
	links := max(w.n("links", 1), 1)
	for i := range w.n("gpus", 0) {
		domain := w["domain"]
		if domain == "" {
			domain = fmt.Sprintf("%s-%d", name, i*links/w.n("gpus", 1))
		}
		g := cluster.GPU{Index: i, Type: cmp.Or(w["type"], "h100"), Domain: domain}
		if kinds := w.list("type"); len(kinds) > 1 { // of each GPU
			g.Type = kinds[i]
		}
		if slices.Contains(w.list("bad"), fmt.Sprint(i)) {
			g.Fault = "XID 79"
		}
		n.GPUs = append(n.GPUs, g)
	}
	return n
}

func id(word string) cluster.JobID {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		panic(err)
	}
	return cluster.JobID(n)
}

// failedBefore sets what earlier attempts of a job leave.
func failedBefore(j *cluster.Job, w words) {
	if w.has("crashed") {
		j.PreemptsFrom = start.Add(20 * time.Minute)
	}
	for _, name := range w.list("avoids") {
		j.Avoided = append(j.Avoided, cluster.Avoided{Node: name, Until: start.Add(time.Hour), Attempt: 1})
	}
}

func (p *picture) job(t testing.TB, fields []string, w words) {
	t.Helper()
	j := &cluster.Job{ID: id(fields[1]), Index: cluster.NoIndex, State: cluster.Pending, Submitted: start.Add(-time.Hour + w.d("after", 0))}
	failedBefore(j, w)
	spec := p.spec(t, w)
	j.Spec = spec
	j.Attempt = cluster.Attempt(w.n("attempt", 0))
	switch w["hold"] {
	case "user":
		j.Hold = cluster.HeldByUser
	case "admin":
		j.Hold = cluster.HeldByAdmin
	}
	if w.has("array") {
		first, index, _ := strings.Cut(w["array"], ":")
		j.Array, j.Index = id(first), words{"i": index}.n("i", 0)
		p.arrays[j.Array] = append(p.arrays[j.Array], j.ID)
	}
	if fields[0] == "job" {
		p.snap.Pending = append(p.snap.Pending, j)
		return
	}
	j.State, j.Attempt, j.Alloc = cluster.Running, 1, &cluster.Allocation{}
	j.Started = start.Add(-time.Hour)
	if spec.TimeLimit > 0 {
		j.Started = start.Add(w.d("left", time.Hour) - spec.TimeLimit - cleanup)
	}
	if w.has("ran") {
		j.Started = start.Add(-w.d("ran", 0))
	}
	if w.has("saved") {
		j.Checkpoints = []*cluster.Checkpoint{{Attempt: 1, Committed: start.Add(-w.d("saved", 0))}}
	}
	if j.WriteTime = w.d("writes", 0); j.WriteTime > 0 {
		spec.CheckpointSignal = cluster.WarnSignal{Number: 10, Before: cluster.DefaultCheckpointLead}
	}
	for _, ago := range w.list("preempted") {
		ended := start.Add(-words{"ago": ago}.d("ago", 0))
		j.Attempts = append(j.Attempts, cluster.AttemptRecord{Outcome: cluster.Preempted, Ended: ended})
	}
	for _, on := range w.list("on") {
		name, gpus, _ := strings.Cut(on, ":")
		a := cluster.NodeAllocation{Node: name, CPUs: spec.Request.CPUsPerTask, Memory: spec.Request.MemPerNode}
		for _, g := range strings.FieldsFunc(gpus, func(r rune) bool { return r == '+' }) {
			from, to, ranged := strings.Cut(g, "-")
			first := words{"i": from}.n("i", 0)
			last := first
			if ranged {
				last = words{"i": to}.n("i", 0)
			}
			for i := first; i <= last; i++ {
				a.GPUs = append(a.GPUs, i)
			}
		}
		j.Alloc.Nodes = append(j.Alloc.Nodes, a)
	}
	elastic(j, w)
	p.snap.Active = append(p.snap.Active, j)
}

// elastic gives an elastic job its members: the later a node is named, the younger is its grant.
func elastic(j *cluster.Job, w words) {
	if !j.Spec.Elastic.On() {
		return
	}
	m := cluster.NewMembers(len(j.Alloc.Nodes), "", 1, j.Started)
	if w.has("resized") {
		m.Resized = start.Add(-w.d("resized", 0))
	}
	for i := range m.List {
		m.List[i].Granted += uint64(i)
		if slices.Contains(w.list("leaves"), j.Alloc.Nodes[i].Node) {
			m.List[i].Leaves = start.Add(time.Minute)
		}
	}
	j.Members, j.Partition = m, j.Spec.Partition
}

func (p *picture) spec(t testing.TB, w words) *cluster.JobSpec {
	t.Helper()
	spec := &cluster.JobSpec{
		Name: w["name"], Account: w["account"], Owner: cluster.Identity{User: cmp.Or(w["user"], "ada"), UID: 1000},
		Partition: cmp.Or(w["part"], "main"), QOS: cmp.Or(w["qos"], "standard"),
		TimeLimit: w.d("limit", time.Hour), Nice: w.n("nice", 0), ArrayLimit: w.n("atmost", 0),
		Elastic: cluster.Elastic{Step: w.n("step", 0)},
		Request: cluster.Request{
			Nodes: w.n("nodes", 0), GPUsPerNode: w.n("gpus", 0), GPUs: w.n("total", 0), GPUTypes: w.list("type"),
			CPUsPerTask: w.n("cpus", 0), MemPerNode: w.size("mem"), MemPerGPU: w.size("gpumem"), Features: w.list("has"),
			NodeList: w.list("only"), MaxNodes: w.n("most", 0), Exclude: w.list("not"), Exclusive: w.has("alone"),
		},
	}
	readRequest(t, spec, w)
	if w.has("begin") {
		spec.Begin = start.Add(w.d("begin", 0))
	}
	if w.has("deadline") {
		spec.Deadline = start.Add(w.d("deadline", 0))
	}
	for _, d := range w.list("dep") {
		kind, ref, _ := strings.Cut(d, ":")
		dep := cluster.Dependency{}
		for k := cluster.After; k <= cluster.Singleton; k++ {
			if k.String() == kind {
				dep.Kind = k
			}
		}
		ref, delay, late := strings.Cut(ref, "+")
		if late {
			dep.Delay = words{"d": delay}.d("d", 0)
		}
		if ref != "" {
			r, err := cluster.ParseJobRef(ref)
			if err != nil {
				t.Fatal(err)
			}
			dep.Job = r
		}
		dep.Any = w.has("any")
		spec.Depends = append(spec.Depends, dep)
	}
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	return spec
}

// write prints a decision: starts and verdicts by job.
func write(d Decision) string {
	type line struct {
		id   cluster.JobID
		text string
	}
	var lines []line
	for _, s := range d.Plan.Starts {
		var on []string
		for _, n := range s.Placement.Nodes {
			on = append(on, n.Node+spans(n.GPUs))
		}
		lines = append(lines, line{s.Job, fmt.Sprintf("%d starts on %s", s.Job, strings.Join(on, " "))})
	}
	for _, v := range d.Plan.Verdicts {
		lines = append(lines, line{v.Job, writeVerdict(&v)})
	}
	for _, g := range d.Plan.Grants {
		text := fmt.Sprintf("%d grows by", g.Job)
		for _, n := range g.Nodes {
			text += " " + n.Node + spans(n.GPUs)
		}
		lines = append(lines, line{g.Job, text})
	}
	for i := range d.Plan.Launches {
		lines = append(lines, line{d.Plan.Launches[i].Job, writeLaunch(&d.Plan.Launches[i])})
	}
	for _, b := range d.Plan.Reclaims {
		by := b.For.String()
		if b.For == 0 {
			by = "a reservation"
		}
		lines = append(lines, line{b.Job, fmt.Sprintf("%d gives up %s for %s", b.Job, strings.Join(b.Nodes, " "), by)})
	}
	for i := range d.Preempt {
		q := &d.Preempt[i]
		text := fmt.Sprintf("%d asks for room on", q.Job)
		for _, h := range q.Hosts {
			text += fmt.Sprintf(" %s:%d", h.Node, h.GPUs)
		}
		text += " from"
		for _, c := range q.Victims {
			text += fmt.Sprintf(" %d", c.Job)
		}
		lines = append(lines, line{q.Job, text})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.id, b.id) })
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	if d.Wake != cluster.Never {
		fmt.Fprintf(&b, "wake at +%s\n", d.Wake.Sub(start))
	}
	return strings.TrimSpace(b.String())
}

func spans(gpus []int32) string {
	if len(gpus) == 0 {
		return ""
	}
	var parts []string
	for i := 0; i < len(gpus); {
		j := i
		for j+1 < len(gpus) && gpus[j+1] == gpus[j]+1 {
			j++
		}
		part := fmt.Sprint(gpus[i])
		if j > i {
			part += fmt.Sprintf("-%d", gpus[j])
		}
		parts, i = append(parts, part), j+1
	}
	return ":" + strings.Join(parts, "+")
}

func writeVerdict(v *cluster.Verdict) string {
	text := fmt.Sprintf("%d waits %s", v.Job, v.Reason)
	if v.Planned != 0 {
		text += " until +" + v.Planned.Sub(start).String()
	}
	if v.Promise != nil {
		text += " (promised)"
	}
	if v.Detail != "" {
		text += ": " + v.Detail
	}
	return text
}
