package schedule_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

// site is a state whose passes are real.
type site struct {
	t     *testing.T
	s     *state.State
	index uint64
	now   cluster.Instant
	plan  *schedule.Planner
}

var operator = command.Actor{Identity: cluster.Identity{User: "root"}, Role: command.RoleAdmin}

// TestAccountsAtWork runs testdata/accounts/*.txt: each line is a command, answered by indented
// lines.
func TestAccountsAtWork(t *testing.T) {
	files, _ := filepath.Glob("testdata/accounts/*.txt")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			x := &site{t: t, s: state.New(), now: 1, plan: schedule.NewPlanner()}
			x.apply(&command.Init{ClusterID: "test", Policy: openPolicy()})
			var out strings.Builder
			for line := range strings.Lines(string(data)) {
				line = strings.TrimRight(line, "\n")
				if strings.HasPrefix(line, "    ") {
					continue
				}
				out.WriteString(line + "\n")
				if line == "" || line[0] == '#' {
					continue
				}
				for _, a := range strings.Split(x.do(strings.Fields(line)), "\n") {
					if a != "" {
						out.WriteString("    " + a + "\n")
					}
				}
			}
			scenario.Golden(t, file, out.String())
		})
	}
}

func (x *site) apply(c command.Command) string {
	x.t.Helper()
	x.index++
	r := x.s.Apply(x.index, x.now, c)
	if err := x.s.Check(); err != nil {
		x.t.Fatal(err)
	}
	switch r := r.(type) {
	case *command.Refusal:
		return "refused: " + r.Message
	case *command.Submitted:
		return fmt.Sprintf("submitted %v", r.First)
	}
	return ""
}

// do runs one line.
func (x *site) do(w []string) string {
	value := func(key string) string {
		for _, word := range w {
			if v, ok := strings.CutPrefix(word, key+"="); ok {
				return v
			}
		}
		return ""
	}
	number := func(key string) int32 { n, _ := strconv.ParseInt(value(key), 10, 32); return int32(n) }
	switch w[0] {
	case "at":
		d, err := time.ParseDuration(w[1])
		if err != nil {
			x.t.Fatal(err)
		}
		x.now = cluster.Instant(d) + 1
		return x.apply(&command.Tick{})
	case "node":
		n := cluster.Node{Name: w[1], BootID: "b", CPUs: 64, Memory: 512 * cluster.GiB, Address: "a:1"}
		for i := range number("gpus") {
			n.GPUs = append(n.GPUs, cluster.GPU{Index: i, Type: value("type"), UUID: w[1] + strconv.Itoa(int(i)), Memory: 80 * cluster.GiB})
		}
		return x.apply(&command.RegisterNode{Node: n})
	case "account":
		return x.account(w[1:])
	case "policy":
		return x.policy(w[1:])
	case "submit":
		limit, _ := time.ParseDuration(value("time"))
		types := strings.FieldsFunc(value("type"), func(r rune) bool { return r == ',' })
		spec := cluster.JobSpec{
			Name: "j", WorkDir: "/", Account: value("account"), Partition: value("partition"), QOS: value("qos"), TimeLimit: max(limit, time.Minute), Nice: number("nice"),
			Request: cluster.Request{Nodes: max(1, number("nodes")), GPUsPerNode: number("gpus"), GPUTypes: types, Exclusive: value("exclusive") != ""},
		}
		who := command.Actor{Identity: cluster.Identity{User: w[1], UID: 1000 + uint32(w[1][0]), GID: 100}}
		jobs := make([]command.Submission, max(1, number("times")))
		for i := range jobs {
			jobs[i].Spec = spec
			if n := number("array"); n > 0 {
				jobs[i].Array = []command.IndexRange{{First: 0, Last: n - 1, Step: 1}}
			}
		}
		return x.apply(&command.SubmitJobs{Actor: who, Jobs: jobs})
	case "update":
		return x.change(w[1], value)
	case "end":
		return x.end(w[1])
	case "pass":
		return x.pass()
	case "promises":
		return x.promises()
	case "shares":
		return x.shares()
	case "charging", "price", "grant", "budget", "tiers", "why":
		return x.credit(w)
	}
	x.t.Fatalf("no such verb: %v", w)
	return ""
}

// account reads NAME [user=U] [parent=P] [shares=N] [LIMIT=VALUE...].
func (x *site) account(w []string) string {
	e := command.AccountEdit{Action: command.AddAccount, Account: w[0]}
	for _, word := range w[1:] {
		key, v, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			n = cluster.SharesOfParent // "parent"
		}
		switch key {
		case "modify":
			e.Action = command.ModifyAccount
		case "user":
			e.User = v
		case "partition":
			e.Partition = v
		case "parent":
			e.Parent = &v
		case "shares":
			e.Shares = &n
		default:
			set, gone, _, err := cluster.ParseLimits(word)
			if err != nil {
				x.t.Fatal(err)
			}
			e.Set, e.Unset = append(e.Set, set...), append(e.Unset, gone...)
		}
	}
	return x.apply(&command.EditAccounts{Actor: operator, Edits: []command.AccountEdit{e}})
}

// openPolicy returns the default policy with every QOS open.
func openPolicy() cluster.Policy {
	p := cluster.DefaultPolicy()
	for i := range p.QOS {
		p.QOS[i].Open = true
	}
	return p
}

// policy reads [qos=NAME LIMIT=VALUE...] [tiers=1] [priority=N of that qos] [classic] [other], a
// further partition of all nodes.
func (x *site) policy(w []string) string {
	p := *x.s.View().Policy()
	p.QOS = append([]cluster.QOS(nil), p.QOS...)
	at := 0
	for _, word := range w {
		key, v, _ := strings.Cut(word, "=")
		n, _ := strconv.ParseInt(v, 10, 32)
		switch key {
		case "qos":
			for i := range p.QOS {
				if p.QOS[i].Name == v {
					at = i
				}
			}
		case "tiers":
			for i := range p.QOS {
				p.QOS[i].Tier = int32(n)
			}
		case "priority":
			p.QOS[at].Priority = int32(n)
		case "other":
			p.Partitions = append(p.Partitions[:1:1], cluster.Partition{Name: "other", Nodes: []string{"ALL"}})
		case "classic":
			p.Scheduling.FairShare.Classic = true
		default:
			set, _, _, err := cluster.ParseLimits(word)
			if err != nil {
				x.t.Fatal(err)
			}
			p.QOS[at].Limits = cluster.SortLimits(append(p.QOS[at].Limits, set...))
		}
	}
	return x.apply(&command.ApplyPolicy{Actor: operator, Policy: p})
}

// change sets the time limit of a job, its GPUs on a node, its QOS, or several of them.
func (x *site) change(id string, value func(string) string) string {
	ref, err := cluster.ParseJobRef(id)
	if err != nil {
		x.t.Fatal(err)
	}
	c := &command.UpdateJobs{Actor: operator, Action: command.SetFields, Jobs: []cluster.JobRef{ref}}
	if d, err := time.ParseDuration(value("time")); err == nil {
		c.TimeLimit = &d
	}
	if n, err := strconv.ParseInt(value("gpus"), 10, 32); err == nil {
		g := int32(n)
		c.GPUsPerNode = &g
	}
	if qos := value("qos"); qos != "" {
		c.QOS = &qos
	}
	return x.apply(c)
}

// end ends a job and reports its nodes clean.
func (x *site) end(id string) string {
	ref, err := cluster.ParseJobRef(id)
	if err != nil {
		x.t.Fatal(err)
	}
	if out := x.apply(&command.CancelJobs{Actor: operator, Jobs: []cluster.JobRef{ref}}); out != "" {
		return out
	}
	j, found := x.s.View().Job(ref.ID)
	if !found || j.Alloc == nil {
		return ""
	}
	for _, a := range j.Alloc.Nodes {
		n, _ := x.s.View().Node(a.Node)
		r := &command.ReportTasks{Node: a.Node, Epoch: n.Epoch, Seen: x.index}
		for other := range x.s.View().OnNode(a.Node) {
			task := cluster.Task{Node: a.Node, Phase: cluster.TaskStarted}
			if other.ID == j.ID {
				task = cluster.Task{Node: a.Node, Phase: cluster.TaskClean, Cause: cluster.Stopped}
			}
			r.Tasks = append(r.Tasks, command.TaskReport{Job: other.ID, Attempt: other.Attempt, Task: task})
		}
		x.apply(r)
	}
	return ""
}

// pass makes passes until nothing starts, and prints all jobs that have not ended.
func (x *site) pass() string {
	var out []string
	for {
		d := x.plan.Pass(x.s.View().Snapshot())
		if len(d.Plan.Starts)+len(d.Plan.Verdicts) > 0 {
			x.apply(&command.CommitPlan{Plan: d.Plan})
		}
		for _, v := range d.Plan.Verdicts {
			if v.Broken != "" {
				out = append(out, fmt.Sprintf("%d BROKEN %s", v.Job, v.Broken))
			}
		}
		if len(d.Plan.Starts) == 0 && !d.More {
			break
		}
	}
	for j := range x.s.View().Jobs(0) {
		line := fmt.Sprintf("%d %s", j.ID, j.Spec.Owner.User)
		if j.State == cluster.Pending {
			line += fmt.Sprintf(" waits: %s %s", j.Reason, j.Detail)
		} else {
			line += " " + j.State.String()
		}
		out = append(out, strings.TrimSpace(line))
	}
	return strings.Join(out, "\n")
}

// shares prints factors, and the priorities of pending jobs.
func (x *site) shares() string {
	snap := x.s.View().Snapshot()
	var out []string
	for _, s := range order.ShareRows(snap.Accounts, &snap.Policy.Scheduling.FairShare, snap.Now) {
		if s.Part != "" {
			s.User += "@" + s.Part
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%*s%s %s shares %d usage %d h factor %.4f", int(s.Depth), "", s.Account, s.User, s.Shares, s.Usage/3_600_000, s.FairShare)))
	}
	parts := order.PartsOf(snap)
	for _, j := range snap.Pending {
		p := parts(j)
		out = append(out, fmt.Sprintf("job %d %s: %d = age %d + fair %d + size %d + partition %d + qos %d - nice %d", j.ID, j.Spec.Owner.User, p.Priority, p.Age, p.FairShare, p.JobSize, p.Partition, p.QOS, p.Nice))
	}
	return strings.Join(out, "\n")
}
