package state

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// run carries out one line.
func (x *script) run(line string) string {
	verb, rest, _ := strings.Cut(line, " ")
	w := split(rest)
	switch verb {
	case "at":
		return x.at(w)
	case "node":
		return x.apply(&command.RegisterNode{Node: node(w), Checked: w.keys["health"] != "", Instance: w.keys["instance"]})
	case "submit":
		return x.apply(x.submission(w))
	case "start":
		return x.start(w)
	case "pass":
		return x.pass()
	case "commit":
		return x.commit()
	case "verdict":
		return x.verdict(w)
	case "report":
		return x.report(rest)
	case "silent", "dead", "alive":
		return x.liveness(verb, w)
	case "cancel", "signal", "hold", "release", "requeue", "requeuehold", "set", "admincomment":
		return x.change(verb, w)
	case "drain", "resume", "remove", "reboot", "rebootidle", "cancelreboot", "fenced":
		return x.updateNodes(verb, w)
	case "audit":
		return x.audited()
	case "tick":
		return x.apply(&command.Tick{})
	case "policy":
		return x.policy(w)
	case "token", "join", "controller":
		return x.token(verb, w)
	case "revoke", "renew", "holders", "rotate", "rotation":
		return x.ofCertificates(verb, w)
	case "step", "stepsignal", "stepattach", "steps":
		return x.ofSteps(verb, w)
	case "cron", "secret", "suspects", "checkpoint", "checkpointset", "checkpoints", "warning":
		return x.ofUsers(verb, w)
	case "part":
		return x.part(w)
	case "account", "accounts", "usage":
		return x.ofAccounts(verb, rest)
	case "credit", "meter", "charging", "credits", "funded":
		return x.ofCredits(verb, w)
	case "qos":
		return x.qos(w)
	case "offers", "offered", "refused", "burst", "launch", "lease", "endleases", "leases", "pauses", "spend", "left", "restored":
		return x.ofLeases(verb, w)
	case "jobs", "request", "partitions":
		return x.ofJobs(verb, w)
	case "nodes", "fleet", "fence", "fences", "topology":
		return x.ofNodes(verb, w)
	case "state":
		c := x.s.View().Counts()
		return fmt.Sprintf("active %d finished %d in the tail %d requests %d blobs %d tokens %d", c.Active, c.Finished, x.s.tail.Len(), c.Requests, c.Blobs, c.Tokens)
	}
	x.t.Fatalf("no such verb: %s", line)
	return ""
}

// ofJobs lists all jobs, or what one of them requests.
func (x *script) ofJobs(verb string, w scriptLine) string {
	switch verb {
	case "jobs":
		return x.jobs()
	case "partitions":
		var lines []string
		for j := range x.s.View().Jobs(0) {
			lines = append(lines, fmt.Sprintf("%s burst %q in %s", j.Ref(), j.Spec.Burst.Mode, strings.Join(j.Spec.AllPartitions(), ",")))
		}
		return strings.Join(lines, "\n")
	}
	id, err := strconv.Atoi(w.plain[0])
	j, known := x.s.View().Job(cluster.JobID(id))
	if err != nil || !known {
		x.t.Fatalf("no such job: %s", w.plain[0])
	}
	return words.Request(&j.Spec.Request)
}

// at sets the log's clock.
func (x *script) at(w scriptLine) string {
	d, err := time.ParseDuration(w.plain[0])
	if err != nil {
		x.t.Fatal(err)
	}
	x.now = cluster.Instant(d) + 1
	return ""
}

// request16 returns a request ID from key=id/payload.
func request16(w scriptLine) command.RequestID {
	key, payload, _ := strings.Cut(w.keys["key"], "/")
	var id command.RequestID
	copy(id.Key[:], key)
	copy(id.Payload[:], payload)
	return id
}

func node(w scriptLine) cluster.Node {
	n := cluster.Node{
		Name: w.plain[0], BootID: w.keys["boot"], CPUs: int32(w.number("cpus", 16)), Memory: cluster.Bytes(w.number("mem", 64)) * cluster.GiB,
		Features: w.list("features"), Fault: w.keys["fault"], Region: w.keys["region"], Gres: gresOf(w.list("gres")),
		Orphans: int32(w.number("has", 0)), Conditions: conditionsOf(w),
	}
	count, typ, _ := strings.Cut(w.keys["gpus"], ":")
	gpus, _ := strconv.Atoi(count)
	for i := range gpus {
		g := cluster.GPU{Index: int32(i), Type: typ, Memory: 80 * cluster.GiB}
		places(w, &g, gpus)
		if w.keys["bad"] == strconv.Itoa(i) {
			g.Fault = "XID 79"
		}
		if w.keys["slow"] == strconv.Itoa(i) {
			g.Degraded = "NVLink error"
		}
		n.GPUs = append(n.GPUs, g)
	}
	for _, name := range w.list("instances") { // such as 1g.10gb@h100:8
		profile, parent, share := cluster.CutPricedType(name)
		n.GPUs = append(n.GPUs, cluster.GPU{
			Index: int32(len(n.GPUs)), Type: profile, Memory: cluster.MIGMemory(profile), ParentType: parent, Share: int32(share),
		})
	}
	return n
}

// dependsOn reads after=1,2 ended=3 unless=4 started=5+10m, and the word any for alternatives.
func (x *script) dependsOn(w scriptLine) (list []cluster.Dependency) {
	for _, kind := range [...]struct {
		word string
		is   cluster.DependencyKind
	}{{"after", cluster.AfterOK}, {"ended", cluster.AfterAny}, {"unless", cluster.AfterNotOK}} {
		for _, d := range w.list(kind.word) {
			ref, err := cluster.ParseJobRef(d)
			if err != nil {
				x.t.Fatal(err)
			}
			list = append(list, cluster.Dependency{Kind: kind.is, Job: ref})
		}
	}
	for _, d := range w.list("started") {
		id, delay, _ := strings.Cut(d, "+")
		ref, err := cluster.ParseJobRef(id)
		if err != nil {
			x.t.Fatal(err)
		}
		late := scriptLine{keys: map[string]string{"d": delay}}
		list = append(list, cluster.Dependency{Kind: cluster.After, Job: ref, Delay: late.duration("d")})
	}
	for i := range list {
		list[i].Any = w.has("any")
	}
	return list
}

func (x *script) submission(w scriptLine) *command.SubmitJobs {
	who := actor(w.plain[0])
	spec := cluster.JobSpec{
		Name: w.keys["name"], Account: w.keys["account"], Partition: w.keys["partition"], QOS: w.keys["qos"],
		TimeLimit: w.duration("time"), Nice: int32(w.number("nice", 0)), Requeue: w.has("requeue"),
		EveryNode: w.has("everynode"), ArrayLimit: int32(w.number("most", 0)), Deadline: cluster.Instant(w.duration("deadline")),
		Begin: cluster.Instant(w.duration("begin")), FromScratch: w.has("scratch"), Retry: x.retryOf(w),
		Signal:           cluster.WarnSignal{Number: int32(w.number("warn", 0)), Before: w.duration("before")},
		CheckpointSignal: cluster.WarnSignal{Number: int32(w.number("save", 0)), Before: w.duration("lead")}, CheckpointEvery: w.duration("every"),
		RequeueAtLimit: w.has("continue"), Elastic: cluster.Elastic{Step: int32(w.number("step", 0)), Signal: int32(w.number("resize", 0))},
		Request: cluster.Request{
			Nodes: int32(w.number("nodes", 0)), MaxNodes: int32(w.number("upto", 0)), GPUsPerNode: int32(w.number("gpusper", 0)), GPUs: int32(w.number("gpus", 0)),
			GPUTypes: w.list("types"), CPUsPerTask: int32(w.number("cpus", 0)), TasksPerNode: int32(w.number("tasks", 0)), MemPerNode: w.size("mem"),
			Tasks: int32(w.number("alltasks", 0)), Features: w.list("features"), NodeList: w.list("on"), Exclude: w.list("not"), Exclusive: w.has("exclusive"),
		},
	}
	if w.has("wholemem") {
		spec.Request.MemFrom = cluster.MemoryAll
	}
	spec.Depends = x.dependsOn(w)
	nearness(w, &spec)
	burstOf(w, &spec)
	if w.has("stageout") {
		spec.StageOut = []cluster.Staging{{Path: "result", URL: "s3://lab/result"}}
	}
	c := &command.SubmitJobs{Request: request16(w), Actor: who}
	if text := w.keys["script"]; text != "" {
		spec.Script = sha256.Sum256([]byte(text))
		if !w.has("bare") {
			c.Blobs = [][]byte{[]byte(text)}
		}
	}
	if w.keys["as"] != "" {
		spec.Owner = actor(w.keys["as"]).Identity
	}
	sub := command.Submission{Spec: spec, Held: w.has("held"), DefaultTime: w.keys["time"] == ""}
	for _, r := range w.list("array") {
		var one command.IndexRange
		if n, _ := fmt.Sscanf(r, "%d-%d:%d", &one.First, &one.Last, &one.Step); n < 2 {
			one.Last = one.First
		}
		one.Step = max(one.Step, 1)
		sub.Array = append(sub.Array, one)
	}
	for range max(1, w.number("times", 1)) {
		c.Jobs = append(c.Jobs, sub)
	}
	return c
}

func id(word string) cluster.JobID {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		panic(err)
	}
	return cluster.JobID(n)
}

// start grants jobs: "1 n1:0,1 n2:0,1" with several separated by "+". The rest is what the job
// requests.
func (x *script) start(w scriptLine) string {
	c := &command.CommitPlan{Plan: cluster.Plan{Index: uint64(w.number("plan", int64(x.index)))}}
	for _, one := range strings.Split(strings.Join(w.plain, " "), "+") {
		f := strings.Fields(one)
		p := cluster.PlannedStart{Job: id(f[0]), Attempt: 1}
		j, known := x.s.job(p.Job)
		if known {
			p.Attempt = j.Attempt + 1
		}
		p.Attempt = cluster.Attempt(w.number("attempt", int64(p.Attempt)))
		for _, place := range f[1:] {
			name, gpus, _ := strings.Cut(place, ":")
			a := cluster.NodeAllocation{Node: name, CPUs: 1}
			for _, g := range strings.FieldsFunc(gpus, func(r rune) bool { return r == ',' }) {
				n, _ := strconv.Atoi(g)
				a.GPUs = append(a.GPUs, int32(n))
			}
			if known {
				a.CPUs, a.Memory = j.Spec.Request.CPUsPerNode(), x.s.memoryFor(j, name, len(a.GPUs))
			}
			p.Placement.Nodes = append(p.Placement.Nodes, a)
		}
		c.Plan.Starts = append(c.Plan.Starts, p)
	}
	return x.apply(c)
}

// memoryFor returns the memory that a node gives a job with that many GPUs; if no node or an
// unregistered one is named, that of no node.
func (s *State) memoryFor(j *cluster.Job, node string, gpus int) cluster.Bytes {
	n, known := s.nodes.Get(node)
	if !known {
		n = &cluster.Node{}
	}
	return j.Spec.Request.MemoryRule().On(n.Size(), int32(gpus))
}

func (x *script) verdict(w scriptLine) string {
	return x.apply(&command.CommitPlan{Plan: cluster.Plan{
		Index: uint64(w.number("plan", int64(x.index))),
		Verdicts: []cluster.Verdict{{
			Job: id(w.plain[0]), Reason: cluster.Reason(w.number("reason", 0)), Detail: w.keys["detail"],
			Planned: cluster.Instant(w.duration("planned")),
		}},
	}})
}

func (x *script) updateNodes(verb string, w scriptLine) string {
	action := map[string]command.NodeAction{
		"drain": command.DrainNodes, "resume": command.ResumeNodes, "remove": command.RemoveNodes,
		"reboot": command.RebootNodes, "rebootidle": command.RebootNodesWhenIdle, "cancelreboot": command.CancelReboots,
		"fenced": command.ConfirmFenced,
	}
	return x.apply(&command.UpdateNodes{Request: request16(w), Actor: actor(w.plain[0]), Names: names(w.plain[1]), Action: action[verb], Reason: w.keys["why"], Force: w.has("force"), StayDrained: w.has("staydrained")})
}
