package state

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// chaos makes random commands: most fit the state, some do not, and some are garbage.
type chaos struct {
	r *rand.Rand
	s *State
	// a job on a node whose report omits it may be lost; mute keeps that rare
	mute   bool
	leases bool // nodes are leased
}

func (x *chaos) pick(n int) int { return x.r.IntN(n) }

func (x *chaos) actor() command.Actor {
	return actor([]string{"ada", "bob", "eve", "op", "root"}[x.pick(5)])
}

func (x *chaos) request() command.RequestID {
	var id command.RequestID
	if x.pick(3) == 0 {
		id.Key[0], id.Payload[0] = byte(x.pick(60)+1), byte(x.pick(2))
	}
	return id
}

func (x *chaos) ref() cluster.JobRef {
	ref := cluster.JobRef{ID: cluster.JobID(x.pick(int(x.s.jobTables.next) + 1)), Index: cluster.NoIndex}
	if x.pick(4) == 0 {
		ref.Index = int32(x.pick(8))
	}
	return ref
}

func (x *chaos) refs() []cluster.JobRef {
	refs := make([]cluster.JobRef, x.pick(4))
	for i := range refs {
		refs[i] = x.ref()
	}
	return refs
}

func (x *chaos) submit() command.Command {
	c := &command.SubmitJobs{Request: x.request(), Actor: x.actor()}
	for range 1 + x.pick(3) {
		sub := command.Submission{DefaultTime: x.pick(2) == 0, Held: x.pick(9) == 0}
		sub.Spec = cluster.JobSpec{
			Name: fmt.Sprint("job", x.pick(5)), Requeue: x.pick(2) == 0, EveryNode: x.pick(4) == 0, ArrayLimit: int32(x.pick(3)),
			Account:   []string{"", "physics", "physics", "physics", "maths"}[x.pick(5)],
			TimeLimit: time.Duration(x.pick(3)) * time.Minute, Nice: int32(x.pick(3)) * 5,
			Request: cluster.Request{Nodes: int32(x.pick(3)), GPUsPerNode: int32(x.pick(3)), CPUsPerTask: int32(x.pick(4)), Exclusive: x.pick(9) == 0},
			Signal:  cluster.WarnSignal{Number: int32(x.pick(2) * 10), Before: 20 * time.Second},
		}
		if x.pick(6) == 0 {
			sub.Spec.Deadline = x.s.now.Add(time.Duration(x.pick(300)) * time.Second)
		}
		if x.pick(6) == 0 {
			sub.Spec.Begin = x.s.now.Add(time.Duration(x.pick(100)) * time.Second)
		}
		if x.pick(5) == 0 {
			sub.Spec.Depends = []cluster.Dependency{{Kind: cluster.DependencyKind(1 + x.pick(5)), Job: x.ref()}}
			if sub.Spec.Depends[0].Kind == cluster.After {
				sub.Spec.Depends[0].Delay = time.Duration(x.pick(3)) * time.Minute
			}
		}
		if x.pick(4) == 0 {
			sub.Array = []command.IndexRange{{First: 1, Last: int32(x.pick(6)), Step: 1 + int32(x.pick(2))}, {First: 0, Last: 3, Step: 3}}
		}
		if x.pick(2) == 0 {
			text := []byte{byte('a' + x.pick(4))}
			sub.Spec.Script = digestOf(text)
			if x.pick(2) == 0 {
				c.Blobs = append(c.Blobs, text)
			}
		}
		x.near(&sub.Spec)
		x.bursts(&sub.Spec)
		c.Jobs = append(c.Jobs, sub)
	}
	return c
}

func (x *chaos) node() string {
	if l := x.lease(); l != nil && x.pick(3) == 0 {
		return l.ID.NodeName()
	}
	return []string{"n1", "n2", "n3", "n4"}[x.pick(4)]
}

func (x *chaos) register() command.Command {
	n := cluster.Node{Name: x.node(), BootID: fmt.Sprint("b", x.pick(20)/19), CPUs: 4 + int32(x.pick(2)*4), Memory: cluster.GiB}
	for i := range 2 + x.pick(3) {
		n.GPUs = append(n.GPUs, cluster.GPU{Index: int32(i), Type: "h100", Domain: []string{"", n.Name + "/0", "rack"}[x.pick(20)/9]})
	}
	return &command.RegisterNode{Node: n}
}

// plan starts jobs at random on mostly free nodes.
func (x *chaos) plan() command.Command {
	c := &command.CommitPlan{Plan: cluster.Plan{Index: x.s.index - uint64(x.pick(2))}}
	for j := range x.s.View().Jobs(0) {
		held := x.s.leases.HeldFor(j.ID)
		if len(held) == 0 && x.pick(3) > 0 || len(c.Plan.Starts) > 6 {
			continue
		}
		if x.pick(4) == 0 {
			c.Plan.Verdicts = append(c.Plan.Verdicts, cluster.Verdict{Job: j.ID, Reason: cluster.Reason(x.pick(8)), Planned: cluster.Instant(x.pick(2))})
			continue
		}
		p := cluster.PlannedStart{Job: j.ID, Attempt: j.Attempt + 1}
		r := j.Spec.Request
		for i := range max(1, r.Nodes) {
			a := cluster.NodeAllocation{Node: x.node(), CPUs: r.CPUsPerNode()}
			if int(i) < len(held) && x.pick(8) > 0 {
				a.Node, p.Partition = held[i].ID.NodeName(), "cloud"
			}
			a.Memory = x.s.memoryFor(j, a.Node, int(r.GPUsPerNode))
			first := int32(x.pick(3))
			for g := range r.GPUsPerNode {
				a.GPUs = append(a.GPUs, first+g)
			}
			p.Placement.Nodes = append(p.Placement.Nodes, a)
		}
		c.Plan.Starts = append(c.Plan.Starts, p)
	}
	return c
}

// report advances most tasks on a node, and sometimes omits or adds one.
func (x *chaos) report() command.Command {
	name := x.node()
	c := &command.ReportTasks{Node: name, Seen: x.s.index}
	if n, known := x.s.nodes.Get(name); known {
		c.Epoch = n.Epoch
	}
	if x.pick(30) == 0 {
		c.Epoch++
	}
	if x.pick(20) == 0 {
		c.Fault = "broken"
	}
	for j, rank := range x.s.View().OnNode(name) {
		if x.pick(12) == 0 && !x.mute {
			continue
		}
		t := *j.Tasks.At(rank)
		t.Phase = min(t.Phase+cluster.TaskPhase(x.pick(3)), cluster.TaskClean)
		if t.Phase >= cluster.TaskEnded && t.Cause == cluster.NoCause {
			t.Cause = cluster.TaskCause(x.pick(10))
			t.Exit.Code = int32(x.pick(2))
		}
		if j.State == cluster.Completing && x.pick(2) == 0 {
			t.Phase = cluster.TaskClean
		}
		t.GPU = x.gpuUse(t.GPU)
		c.Tasks = append(c.Tasks, command.TaskReport{Job: j.ID, Attempt: j.Attempt, Task: t, Granted: j.Granted})
	}
	c.Tasks = append(c.Tasks, x.late(name)...)
	if x.leases && x.pick(20) == 0 {
		c.Reclaim = x.s.now.Add(time.Duration(x.pick(90)) * time.Second)
	}
	if x.pick(20) == 0 {
		c.Tasks = append(c.Tasks, command.TaskReport{Job: x.ref().ID, Attempt: 1, Task: cluster.Task{Phase: cluster.TaskStarted}})
	}
	return c
}

// gpuUse returns the GPU usage that a node reports: more than before, or anything.
func (x *chaos) gpuUse(u cluster.GPUUse) cluster.GPUUse {
	if x.pick(10) == 0 {
		return cluster.GPUUse{BusyMs: int64(x.pick(3)-1) << 60, KnownMs: int64(x.pick(3)-1) << x.pick(64), MemoryPeak: -1, MemoryKnown: x.pick(2) == 0}
	}
	ms := int64(x.pick(1 << 20))
	return u.Plus(cluster.GPUUse{BusyMs: ms / 2, KnownMs: ms, MemoryPeak: cluster.Bytes(x.pick(80)) * cluster.GiB, MemoryKnown: true})
}

func (x *chaos) liveness() command.Command {
	for n := range x.s.View().Nodes() {
		if n.Fence.Since > 0 && x.pick(8) == 0 {
			return &command.FenceNode{Node: n.Name, Since: n.Fence.Since, Failure: []string{"", "no power"}[x.pick(2)]}
		}
	}
	c := &command.SetLiveness{}
	for range x.pick(3) {
		name := x.node()
		n, _ := x.s.nodes.Get(name)
		if n != nil {
			c.Nodes = append(c.Nodes, command.NodeLiveness{Node: name, Epoch: n.Epoch, Liveness: cluster.Liveness(max(0, x.pick(6)-3))})
		}
	}
	return c
}

func (x *chaos) update() command.Command {
	c := &command.UpdateJobs{Request: x.request(), Actor: x.actor(), Jobs: x.refs(), Action: command.UpdateAction(x.pick(6))}
	if c.Action == command.SetFields {
		limit, name, most, nice := time.Duration(x.pick(200))*time.Second, "renamed", int32(x.pick(3)), int32(x.pick(5)-1)
		c.TimeLimit, c.Name = &limit, &name
		if x.pick(2) == 0 {
			c.ArrayLimit, c.Nice = &most, &nice
		}
		if account := []string{"", "physics", "maths", "uni"}[x.pick(4)]; x.pick(3) == 0 {
			c.Account = &account
		}
	}
	return c
}

func (x *chaos) policy() command.Command {
	p := cluster.DefaultPolicy()
	p.Partitions[0].Down = x.pick(4) == 0
	p.MaxRestarts = int32(x.pick(3))
	p.MaxJobs = int64(20 + x.pick(40))
	p.Fencing = p.MaxJobs%4 == 0
	p.Scheduling.FairShare.HalfLife = []time.Duration{7 * 24 * time.Hour, time.Second, 0}[x.pick(3)] // decays, fast, never
	x.charging(&p)
	x.renting(&p)
	if x.pick(5) == 0 {
		p.Partitions[0].Nodes = []string{"n[1-2]"}
	}
	return &command.ApplyPolicy{Request: x.request(), Actor: x.actor(), Policy: p, Expect: uint64(x.pick(3))}
}

func (x *chaos) next() command.Command {
	if x.leases && x.pick(4) == 0 {
		return x.burst()
	}
	switch n := x.pick(100); {
	case n < 4:
		return x.credits()
	case n < 6:
		return x.meter()
	case n < 22:
		return x.submit()
	case n < 42:
		return x.plan()
	case n < 72:
		return x.report()
	case n < 76:
		return x.register()
	case n < 80:
		return x.liveness()
	case n < 86:
		return x.update()
	case n < 90:
		return &command.CancelJobs{Request: x.request(), Actor: x.actor(), Jobs: x.refs(), Signal: int32(x.pick(2) * x.pick(70))}
	case n < 94:
		return &command.Tick{}
	case n < 95:
		return x.editAccounts()
	case n < 96 && x.pick(2) == 0:
		return x.topology()
	case n < 96:
		return x.policy()
	case n < 97:
		return &command.UpdateNodes{Actor: x.actor(), Names: []string{x.node()}, Action: nodeActions[x.pick(len(nodeActions))], Reason: "chance", Force: true}
	case n < 98:
		return &command.PutBlob{Digest: digestOf([]byte("ab")), Size: 2, Offset: int64(x.pick(2)), Part: []byte("ab")[:1+x.pick(2)]}
	case n < 99:
		return &command.CreateToken{Request: x.request(), Actor: x.actor(), Hash: digestOf([]byte{byte(x.pick(4))}), Kind: command.TokenKind(x.pick(5)), Expires: x.s.now.Add(time.Minute), Uses: uint32(x.pick(3))}
	case n < 100 && x.pick(2) == 0:
		return x.controller()
	case n < 100 && x.pick(2) == 0:
		return &command.UseToken{Hash: digestOf([]byte{byte(x.pick(4))}), Kind: command.TokenKind(x.pick(5)), Name: x.node()}
	}
	return x.garbage()
}

// controller records or retires one of a few controllers.
func (x *chaos) controller() command.Command {
	id, host := "ctl-"+x.node(), x.node()
	if x.pick(3) == 0 {
		return &command.RetireMember{Actor: x.actor(), ID: id}
	}
	return &command.RecordMember{Actor: x.actor(), ID: id, Name: host}
}

// editAccounts changes a few of the accounts that submissions name.
func (x *chaos) editAccounts() command.Command {
	c := &command.EditAccounts{Request: x.request(), Actor: x.actor()}
	if x.pick(4) > 0 {
		c.Actor = actor("op")
	}
	accounts := []string{"physics", "maths", "uni", "root"}
	for range 1 + x.pick(4) {
		e := command.AccountEdit{Action: command.AccountAction(1 + x.pick(4)), Account: accounts[x.pick(4)]}
		if x.pick(2) == 0 {
			e.User = x.actor().Identity.User
			e.Partition = []string{"", "", cluster.DefaultPolicy().Partitions[0].Name}[x.pick(3)]
		} else if x.pick(2) == 0 {
			e.Parent = &accounts[x.pick(4)]
		}
		if shares := int64(x.pick(6)) - 1; shares != 0 { // -1: the parent's
			e.Shares = &shares
		}
		if x.pick(4) == 0 {
			e.Set = []cluster.Limit{{Kind: cluster.LimitKind(1 + x.pick(11)), Value: int64(x.pick(20))}}
			if e.Set[0].Kind.OfResource() {
				e.Set[0].Resource = cluster.ResourceGPU
			}
		}
		c.Edits = append(c.Edits, e)
	}
	return c
}

// garbage returns a command with random contents in every field.
func (x *chaos) garbage() command.Command {
	all := []command.Command{
		&command.Init{}, &command.SubmitJobs{}, &command.CancelJobs{}, &command.UpdateJobs{}, &command.RegisterNode{},
		&command.ReportTasks{}, &command.SetLiveness{}, &command.UpdateNodes{}, &command.CommitPlan{}, &command.ApplyPolicy{},
		&command.CreateToken{}, &command.UseToken{}, &command.PutBlob{}, &command.EditAccounts{},
		&command.ChangeCredits{}, &command.MeterJobs{}, &command.RecordMember{}, &command.RetireMember{},
		&command.RecordCertificate{}, &command.RevokeCertificates{}, &command.SetOffers{}, &command.UpdateLeases{}, &command.EndLeases{}, nil,
	}
	c := all[x.pick(len(all))]
	if c != nil {
		scramble(x.r, reflect.ValueOf(c).Elem())
	}
	return c
}

// feed applies the same entries to a state as to another one.
func feed(s *State, log []entry) {
	for _, e := range log {
		s.Apply(e.index, e.at, e.c)
	}
}

type entry struct {
	index uint64
	at    cluster.Instant
	c     command.Command
}

func encode(t *testing.T, s *State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.View().Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// nodeActions are the changes of nodes of the model, one of them invalid. Most end a drain, as few nodes reboot.
var nodeActions = [...]command.NodeAction{
	0, command.DrainNodes, command.ResumeNodes, command.ResumeNodes, command.RemoveNodes,
	command.RebootNodes, command.RebootNodesWhenIdle, command.CancelReboots, command.CancelReboots,
	command.ConfirmFenced,
}
