package state

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// report is "n1 1/1 started, 2/1 ended exit=1 cause=3": the node and its tasks.
func (x *script) report(rest string) string {
	name, tasks, _ := strings.Cut(rest, " ")
	n, _ := x.s.nodes.Get(name)
	c := &command.ReportTasks{Node: name, Seen: x.index}
	if n != nil {
		c.Epoch = n.Epoch
	}
	phases := []string{"wanted", "started", "ended", "clean"}
	causes := []string{"", "exited", "stopped", "memory", "launch", "node", "gpu", "image", "lost", "checkpoint", "output", "credentials"}
	for _, one := range strings.Split(tasks, ",") {
		w := split(one)
		c.Epoch = uint64(w.number("epoch", int64(c.Epoch)))
		c.Seen = uint64(w.number("seen", int64(c.Seen)))
		c.Fault, c.Reclaim = w.keys["fault"], x.later(w, "reclaim")
		if list := conditionsOf(w); list != nil {
			c.Conditions = list
		}
		if len(w.plain) < 2 {
			continue
		}
		job, attempt, _ := strings.Cut(w.plain[0], "/")
		a, _ := strconv.Atoi(attempt)
		t := command.TaskReport{Job: id(job), Attempt: cluster.Attempt(a), Granted: uint64(w.number("grant", 0))}
		t.Task.Phase = cluster.TaskPhase(slices.Index(phases, w.plain[1]))
		t.Task.Exit = cluster.Exit{Code: int32(w.number("exit", 0)), Signal: int32(w.number("signal", 0))}
		t.Task.Message = w.keys["message"]
		t.Task.GPU = cluster.GPUUse{BusyMs: w.duration("busy").Milliseconds(), KnownMs: w.duration("known").Milliseconds(), MemoryPeak: w.size("held")}
		t.Task.Output = uint8(w.number("output", 0))
		t.Task.Copied = cluster.CopyState(slices.Index([]string{"", "yes", "failed"}, w.keys["copied"]))
		t.Task.Inactive, t.Task.IdleGPUs = uint8(w.number("inactive", 0)), int32(w.number("idle", 0))
		t.Task.GPU.MemoryKnown = w.keys["held"] != ""
		if t.Task.Phase == cluster.TaskStarted {
			t.Task.Started = x.now
		}
		if t.Task.Phase >= cluster.TaskEnded {
			t.Task.Cause = cluster.Exited
		}
		if cause, there := w.keys["cause"]; there {
			t.Task.Cause = cluster.TaskCause(slices.Index(causes, cause))
		}
		if t.Ran = w.duration("ran"); w.keys["record"] != "" {
			t.Task.Started = x.now
			if j, holds := x.s.holding.Get(t.Job); holds { // as it reported before
				t.Task.Started = cmp.Or(j.Tasks.At(max(0, x.s.rankOf(j.ID, name))).Started, x.now)
			}
			t.Task.Ended = t.Task.Started.Add(w.duration("record"))
		}
		t.Steps, t.Stuck = stepReports(w.keys["ended"]), w.has("stuck")
		c.Tasks = append(c.Tasks, t)
	}
	nothing := x.s.View().NothingNew(c)
	before := bodyDigest(x.s)
	text := x.apply(c)
	if same := before == bodyDigest(x.s) && text == ""; nothing != same {
		x.t.Errorf("report %s: NothingNew says %v, the state says %v", rest, nothing, same)
	}
	if nothing {
		return text + "nothing new"
	}
	return text
}

func (x *script) liveness(verb string, w scriptLine) string {
	c := &command.SetLiveness{}
	for _, name := range names(w.plain[0]) {
		l := command.NodeLiveness{Node: name, Liveness: cluster.Liveness(slices.Index([]string{"alive", "silent", "dead"}, verb)), RebootLate: w.has("late")}
		if n, known := x.s.nodes.Get(name); known {
			l.Epoch = uint64(w.number("epoch", int64(n.Epoch)))
		}
		c.Nodes = append(c.Nodes, l)
	}
	return x.apply(c)
}

func (x *script) change(verb string, w scriptLine) string {
	who, refs := actor(w.plain[0]), []cluster.JobRef{}
	for _, word := range w.plain[1:] {
		ref, err := cluster.ParseJobRef(word)
		if err != nil {
			x.t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	if verb == "cancel" || verb == "signal" {
		return x.apply(&command.CancelJobs{Request: request16(w), Actor: who, Jobs: refs, Signal: int32(w.number("number", 0))})
	}
	c := &command.UpdateJobs{Request: request16(w), Actor: who, Jobs: refs, Action: map[string]command.UpdateAction{
		"hold": command.HoldJobs, "release": command.ReleaseJobs, "requeue": command.RequeueJobs, "requeuehold": command.RequeueHeldJobs, "set": command.SetFields, "admincomment": command.SetAdminComment,
	}[verb]}
	if _, there := w.keys["time"]; there {
		d := w.duration("time")
		c.TimeLimit = &d
	}
	for key, field := range map[string]**string{"partition": &c.Partition, "qos": &c.QOS, "account": &c.Account, "name": &c.Name, "comment": &c.Comment, "reservation": &c.Reservation} {
		if v, there := w.keys[key]; there {
			*field = &v
		}
	}
	for key, field := range map[string]**int32{"nice": &c.Nice, "most": &c.ArrayLimit, "nodes": &c.Nodes, "gpusper": &c.GPUsPerNode, "gpus": &c.GPUs} {
		if _, there := w.keys[key]; there {
			n := int32(w.number(key, 0))
			*field = &n
		}
	}
	for key, field := range map[string]**cluster.Instant{"begin": &c.Begin, "deadline": &c.Deadline} {
		if _, there := w.keys[key]; there {
			at := cluster.Instant(w.duration(key))
			*field = &at
		}
	}
	if _, there := w.keys["after"]; there {
		list := x.dependsOn(w)
		c.Depends = &list
	}
	c.TimeLimitBy, c.AdminComment = w.duration("by"), w.keys["text"]
	for key, field := range map[string]**cluster.Bytes{"mem": &c.MemPerNode, "mempercpu": &c.MemPerCPU, "mempergpu": &c.MemPerGPU} {
		if _, there := w.keys[key]; there {
			size := cluster.Bytes(w.number(key, 0)) << 30
			*field = &size
		}
	}
	for key, field := range map[string]**[]string{"nodelist": &c.NodeList, "features": &c.Features} {
		if list, there := w.keys[key]; there {
			words := strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
			*field = &words
		}
	}
	return x.apply(c)
}

// policy applies the default policy with some fields changed.
func (x *script) policy(w scriptLine) string {
	p := cluster.DefaultPolicy()
	main := &p.Partitions[0]
	main.Down, main.MaxTime, main.MaxNodes = w.has("down"), w.duration("maxtime"), int32(w.number("maxnodes", 0))
	main.AllowAccounts, main.GPUShare = w.list("accounts"), int32(w.number("gpushare", 0))
	if main.MaxTime > 0 {
		main.DefaultTime = min(main.DefaultTime, main.MaxTime)
	}
	if list := w.list("main"); list != nil {
		main.Nodes = list
	}
	if list := w.list("other"); list != nil {
		p.Partitions = append(p.Partitions, cluster.Partition{Name: "other", Nodes: list})
	}
	p.MaxArray, p.MaxJobs = int32(w.number("maxarray", 1000)), w.number("maxpending", 1000)
	p.PreemptExempt, p.PreemptGrace = w.duration("exempt"), w.duration("grace")
	p.InactiveLimit, p.OutputWarn, p.Fencing = w.duration("inactivelimit"), w.size("outputwarn"), w.has("fencing")
	p.MaxRestarts, p.Private = int32(w.number("restarts", 5)), w.has("private")
	schedulingOf(w, &p.Scheduling)
	if w.has("broken") {
		p.DefaultQOS = "nothing"
	}
	return x.apply(&command.ApplyPolicy{Request: request16(w), Actor: actor(w.plain[0]), Policy: p, Expect: uint64(w.number("expect", 0))})
}

func (x *script) token(verb string, w scriptLine) string {
	if verb == "controller" {
		return x.controller(w)
	}
	hash := cluster.Digest(sha256.Sum256([]byte(w.keys["hash"])))
	if verb == "join" {
		c := &command.UseToken{Hash: hash, Kind: command.TokenKind(w.number("kind", 1)), Name: w.plain[0], Instance: w.keys["instance"]}
		if holder := w.keys["as"]; holder != "" {
			c.Certificate = x.certificate(holder, w)
		}
		return x.apply(c)
	}
	return x.apply(&command.CreateToken{
		Request: request16(w), Actor: actor(w.plain[0]), Hash: hash, Kind: command.TokenKind(w.number("kind", 1)),
		Expires: cluster.Instant(w.duration("expires")), Name: w.keys["for"], Replace: w.has("replace"), Uses: uint32(w.number("uses", 1)),
	})
}

// controller is "controller root ctl-1 host=c1", or with remove.
func (x *script) controller(w scriptLine) string {
	by, id := actor(w.plain[0]), w.plain[1]
	if w.has("remove") {
		return x.apply(&command.RetireMember{Actor: by, ID: id, Name: w.keys["host"]})
	}
	if w.has("show") {
		m, known := x.s.View().Hosts().Controller(id)
		return fmt.Sprintf("%v %q retired %v", known, m.Name, m.Retired != 0)
	}
	return x.apply(&command.RecordMember{Actor: by, ID: id, Name: w.keys["host"]})
}

// part sends a part of the blob "text".
func (x *script) part(w scriptLine) string {
	text := w.keys["text"]
	from, to := int(w.number("from", 0)), int(w.number("to", int64(len(text))))
	c := &command.PutBlob{Digest: sha256.Sum256([]byte(text)), Size: int64(len(text)), Offset: int64(from), Part: []byte(text[from:to])}
	if w.has("spoilt") {
		c.Part[0]++
	}
	answer := x.apply(c)
	if x.s.View().HasBlob(c.Digest) {
		answer += "it is there"
	}
	return answer
}

// jobs lists every job in the state.
func (x *script) jobs() string {
	var lines []string
	v := x.s.View()
	for j := range v.Jobs(0) {
		lines = append(lines, jobLine(v, j))
	}
	for f := range v.Tail(0) {
		line := fmt.Sprintf("%s, finished as %d", jobLine(v, f.Job), f.Seq)
		if f.Job.Charged != 0 {
			line += ", charged " + accounting.Credits(f.Job.Charged).String()
		}
		lines = append(lines, line)
	}
	if due := v.NextDue(); due != cluster.Never {
		lines = append(lines, "next due at "+due.Sub(1).String())
	}
	return strings.Join(lines, "\n")
}

func jobLine(v *View, j *cluster.Job) string {
	line := fmt.Sprintf("%s %s %s", j.Ref(), j.Spec.Owner.User, j.State)
	if j.Outcome != 0 && !j.State.Final() {
		line += "/" + j.Outcome.String()
	}
	if j.Reason != cluster.ReasonNone {
		line += " " + j.Reason.String()
	}
	if j.Detail != "" {
		line += " (" + j.Detail + ")"
	}
	if j.Attempt > 0 {
		line += fmt.Sprintf(" attempt %d", j.Attempt)
	}
	if len(j.Spec.OtherPartitions) > 0 {
		line += " in " + j.PartitionList()
	}
	for i := range j.Attempts {
		if use := useText(j.Attempts[i].GPU); use != "" {
			line += fmt.Sprintf(" (%d:%s)", j.Attempts[i].Attempt, use)
		}
	}
	for i, t := range j.Tasks.All() {
		phase := []string{"wanted", "started", "ended", "clean"}[t.Phase]
		if t.Phase == cluster.TaskWanted && t.Message != "" {
			phase += "(" + t.Message + ")"
		}
		line += fmt.Sprintf(" %s:%v=%s%s", t.Node, j.Alloc.Nodes[i].GPUs, phase, useText(t.GPU))
	}
	line += membersText(j)
	if j.Exit != (cluster.Exit{}) {
		line += fmt.Sprintf(" exit %d:%d", j.Exit.Code, j.Exit.Signal)
	}
	if j.State == cluster.Pending && j.Eligible > v.Now() {
		line += " from " + j.Eligible.Sub(1).String()
	}
	if j.Planned != 0 {
		line += " planned " + j.Planned.Sub(0).String()
	}
	if s := v.Signals(j.ID); len(s) > 0 {
		line += fmt.Sprintf(" signals %v", s)
	}
	return line
}

// useText returns the GPU usage, as far as it is known.
func useText(u cluster.GPUUse) string {
	text := ""
	if u.Known() {
		text += fmt.Sprintf(" busy %s of %s", time.Duration(u.BusyMs)*time.Millisecond, time.Duration(u.KnownMs)*time.Millisecond)
	}
	if u.MemoryKnown {
		text += " held " + u.MemoryPeak.String()
	}
	return text
}

func (x *script) nodes() string {
	var lines []string
	v := x.s.View()
	for n := range v.Nodes() {
		u := v.Use(n.Name)
		line := fmt.Sprintf("%s %s epoch %d jobs %d cpus %d mem %s gpus %v", n.Name, n.State(u), n.Epoch, u.Jobs, u.CPUs, u.Memory, taken(u.GPUs))
		for _, g := range u.Shared {
			line += fmt.Sprintf(" GPU %d shared by %d of %d", g.GPU, g.Jobs, g.By.GPUShare.Jobs)
		}
		if n.Drain {
			line += fmt.Sprintf(" drained by %s: %s", n.DrainBy, n.DrainWhy)
		}
		if n.Reboot.When != cluster.NoReboot {
			line += " reboot " + map[bool]string{true: "due", false: "waits"}[n.RebootDue(u)]
		}
		if f := &n.Fence; f.Since > 0 {
			line += fmt.Sprintf(" fence for %v", f.Jobs)
			if f.Tries > 0 {
				line += fmt.Sprintf(" failed %d times: %s, next %s", f.Tries, f.Failure, f.Due().Sub(f.Tried))
			}
		}
		if len(u.Gres) > 0 {
			line += " gres " + cluster.FormatGres(u.Gres)
		}
		if n.Fault != "" {
			line += fmt.Sprintf(" fault %s since %s", n.Fault, time.Duration(n.FaultSince-1))
		}
		if n.Orphans > 0 {
			line += fmt.Sprintf(" leftovers %d", n.Orphans)
		}
		for _, c := range n.Conditions {
			line += fmt.Sprintf(" [%s %s]", c.Cause, c.Effect)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// conditionsOf returns the conditions of health=CAUSE:EFFECT[:JOB];..., none for health=ok, and nil without
// the key.
func conditionsOf(w scriptLine) []cluster.Condition {
	text, there := w.keys["health"]
	if !there {
		return nil
	}
	list := []cluster.Condition{}
	for one := range strings.SplitSeq(strings.TrimPrefix(text, "ok"), ";") {
		words := strings.Split(one+":::", ":")
		job, _ := strconv.ParseUint(words[2], 10, 64)
		effect := cluster.Effect(slices.Index([]string{"", "notice", "degrades", "drains"}, words[1]))
		if words[0] != "" {
			list = append(list, cluster.Condition{Cause: words[0], Effect: effect, Repair: cluster.Repair(slices.Index([]string{"", "reset", "reboot"}, words[3])), Message: words[0] + " is bad", Job: cluster.JobID(job)})
		}
	}
	return list
}
