package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// ledger measures the cost of credits in the state machine alone.
func ledger(ctx context.Context, out *paper) error {
	return errors.Join(ledgerLife(ctx, out), metering(ctx, out), manyPayers(ctx, out))
}

// books is the state of one replica without its log: each command is decoded from its entry and
// applied, and its journal drained.
type books struct {
	ctx   context.Context // ends the measurement early
	s     *state.State
	index uint64
	now   cluster.Instant
	bytes int  // of the last entry
	blind bool // no view is taken after a command
}

var steward = command.Actor{Identity: cluster.Identity{User: "root"}, Role: command.RoleAdmin}

// newBooks returns a cluster of nodes with 8 H100 each, an organisation with the largest possible
// credits, and a project with a user.
func newBooks(ctx context.Context, nodes int, charging bool) (*books, error) {
	b := &books{ctx: ctx, s: state.New(), now: cluster.Instant(1_800_000_000 * 1e9)}
	policy := cluster.DefaultPolicy()
	policy.Credits.On = charging
	parent := "org"
	commands := []command.Command{
		&command.ApplyPolicy{Actor: steward, Policy: policy},
		&command.EditAccounts{Actor: steward, Edits: []command.AccountEdit{
			{Action: command.PutAccount, Account: "org"}, {Action: command.PutAccount, Account: "project", Parent: &parent},
			{Action: command.PutAccount, Account: "project", User: "ana"},
		}},
		&command.EditAccounts{Actor: steward, Edits: granted()},
		&command.ChangeCredits{Actor: steward, Action: command.SetPrice, GPUType: "h100", Amount: 2 * accounting.One},
		grantTo("org", ""),
	}
	for i := range nodes {
		n := cluster.Node{Name: nodeName(i), BootID: "b", CPUs: 128, Memory: 8 * memoryOfGPU}
		for g := range 8 {
			n.GPUs = append(n.GPUs, cluster.GPU{Index: int32(g), Type: "h100"})
		}
		commands = append(commands, &command.RegisterNode{Node: n})
	}
	for _, c := range commands {
		if _, err := b.do(c); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// grantees is the number of users of the project other than ana. Each may have 1,000 buckets at
// most.
const grantees = 1000

func grantee(i int) string { return fmt.Sprintf("user%03d", i%grantees) }

func granted() (edits []command.AccountEdit) {
	for i := range grantees {
		edits = append(edits, command.AccountEdit{Action: command.PutAccount, Account: "project", User: grantee(i)})
	}
	return edits
}

func nodeName(i int) string { return fmt.Sprintf("gpu%05d", i) }

func grantTo(account, user string) *command.ChangeCredits {
	return &command.ChangeCredits{
		Actor: steward, Action: command.GrantCredits, Account: account, User: user, Class: accounting.Purchase, Amount: 1_000_000 * accounting.One,
	}
}

// do applies a command as a replica does that reads it from the log, and returns its result.
func (b *books) do(c command.Command) (command.Result, error) {
	if err := b.ctx.Err(); err != nil {
		return nil, err
	}
	entry := command.Encode(c)
	b.bytes = len(entry)
	c, err := command.Decode(entry)
	if err != nil {
		return nil, err
	}
	b.index++
	b.now = b.now.Add(time.Millisecond)
	r := b.s.Apply(b.index, b.now, c)
	b.s.Effects()
	if !b.blind {
		b.s.View()
	}
	if refusal, refused := r.(*command.Refusal); refused {
		return nil, fmt.Errorf("%T: %s", c, refusal.Message)
	}
	return r, nil
}

// took returns the processor time and the time of f.
func took(f func() error) (processor, clock time.Duration, err error) {
	runtime.GC()
	before, begun := cpu(os.Getpid()), time.Now()
	err = f()
	return cpu(os.Getpid()) - before, time.Since(begun), err
}

// ledgerLife measures grants, and jobs from their submission to their bill, next to the same jobs
// in a cluster that does not charge.
func ledgerLife(ctx context.Context, out *paper) error {
	const nodes, jobs, grants = 1250, 10_000, 20_000
	out.table(fmt.Sprintf("Credits in the state machine, one thread: %d nodes × 8 GPUs, %d jobs of one GPU", nodes, jobs),
		"operation", "operations/s", "CPU an operation", "the same without credits")
	b, err := newBooks(ctx, nodes, true)
	if err != nil {
		return err
	}
	free, err := newBooks(ctx, nodes, false)
	if err != nil {
		return err
	}
	used, clock, err := took(func() error {
		for i := range grants {
			if _, err := b.do(grantTo("project", grantee(i))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	out.row("a grant, one a command", rate(grants, clock), micros(used, grants), "-")
	for _, step := range []struct {
		what string
		do   func(*books) error
	}{
		{"set aside with a submission, 100 jobs a command", func(b *books) error { return b.submit(jobs) }},
		{"begin to charge at a start, 250 starts a command", func(b *books) error { return b.start(jobs) }},
		{"charge and release at an end, 8 jobs a command", func(b *books) error { return b.end(jobs) }},
	} {
		used, clock, err := took(func() error { return step.do(b) })
		without, _, failed := took(func() error { return step.do(free) })
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		out.row(step.what, rate(jobs, clock), micros(used, jobs), micros(without, jobs))
	}
	if entries, _ := b.s.View().Credits().Head(); entries != grants+1+3*jobs {
		return fmt.Errorf("the journal has %d entries", entries)
	}
	return nil
}

func rate(n int, d time.Duration) string { return fmt.Sprintf("%.0f", float64(n)/d.Seconds()) }

// submit submits jobs of one GPU for five hours.
func (b *books) submit(jobs int) error {
	for range jobs / 100 {
		c := &command.SubmitJobs{Actor: command.Actor{Identity: cluster.Identity{User: "ana", UID: 1000, GID: 100}, Role: command.RoleUser}}
		for range 100 {
			c.Jobs = append(c.Jobs, command.Submission{Spec: cluster.JobSpec{
				Name: "train", Account: "project", Owner: c.Actor.Identity, TimeLimit: 5 * time.Hour, WorkDir: "/home/ana", Output: "out-%j",
				Request: cluster.Request{Nodes: 1, GPUsPerNode: 1, GPUTypes: []string{"h100"}, CPUsPerTask: 8},
			}})
		}
		if _, err := b.do(c); err != nil {
			return err
		}
	}
	return nil
}

// memoryOfGPU is the share of a node's memory that a job with one of its eight GPUs gets.
const memoryOfGPU = 128 * cluster.GiB

// start starts jobs 1 to n, eight on each node.
func (b *books) start(n int) error {
	for first := 0; first < n; first += 250 {
		plan := cluster.Plan{Index: b.index}
		for i := first; i < min(first+250, n); i++ {
			plan.Starts = append(plan.Starts, cluster.PlannedStart{Job: cluster.JobID(i + 1), Attempt: 1, Placement: cluster.Placement{
				Nodes: []cluster.NodeAllocation{{Node: nodeName(i / 8), GPUs: []int32{int32(i % 8)}, CPUs: 8, Memory: memoryOfGPU}},
			}})
		}
		r, err := b.do(&command.CommitPlan{Plan: plan})
		if err != nil {
			return err
		}
		if done := len(r.(*command.Committed).Started); done != len(plan.Starts) {
			return fmt.Errorf("%d of %d jobs were started", done, len(plan.Starts))
		}
	}
	return nil
}

// end reports from each node that its tasks ran for three hours, ended and are gone.
func (b *books) end(n int) error {
	b.now = b.now.Add(3 * time.Hour)
	for i := 0; i < n; i += 8 {
		node, _ := b.s.View().Node(nodeName(i / 8))
		for phase := cluster.TaskStarted; phase <= cluster.TaskClean; phase++ {
			c := &command.ReportTasks{Node: node.Name, Epoch: node.Epoch, Seen: b.index}
			for k := range 8 {
				c.Tasks = append(c.Tasks, command.TaskReport{Job: cluster.JobID(i + k + 1), Attempt: 1, Task: cluster.Task{Phase: phase, Cause: cluster.Exited}})
			}
			if _, err := b.do(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// metering measures samples of 50,000 running jobs, which arrive every 30 s.
func metering(ctx context.Context, out *paper) error {
	const jobs, batch, rounds, every = 50_000, 5_000, 20, 30 * time.Second
	b, err := newBooks(ctx, jobs/8, true)
	if err == nil {
		err = errors.Join(b.submit(jobs), b.start(jobs))
	}
	if err != nil {
		return err
	}
	size := 0
	used, _, err := took(func() error {
		for round := range rounds {
			b.now = b.now.Add(every)
			for first := 0; first < jobs; first += batch {
				c := &command.MeterJobs{}
				for i := first; i < first+batch; i++ {
					c.Samples = append(c.Samples, command.JobSample{
						Job: cluster.JobID(i + 1), Attempt: 1, Epoch: 1, Number: uint64(round + 1), GPUms: int64(round+1) * every.Milliseconds(),
					})
				}
				if _, err := b.do(c); err != nil {
					return err
				}
				size += b.bytes
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	out.table(fmt.Sprintf("Metering %d running jobs every 30 s, %d samples a log entry", jobs, batch), "CPU a round", "of one core", "CPU a sample", "log a round")
	out.row(ms(used/rounds), fmt.Sprintf("%.2f %%", 100*used.Seconds()/rounds/every.Seconds()), fmt.Sprintf("%d ns", used.Nanoseconds()/rounds/jobs), fmt.Sprintf("%d KiB", size/rounds>>10))
	return nil
}

// manyPayers measures 1,000,000 users with a bucket each.
func manyPayers(ctx context.Context, out *paper) error {
	const projects, users = 10_000, 100
	empty := heapInUse()
	b, err := newBooks(ctx, 0, true)
	if err != nil {
		return err
	}
	begun := time.Now()
	parent := "org"
	b.blind = true // each of these views would count all accounts
	for p := range projects {
		name := fmt.Sprintf("project%05d", p)
		edits := []command.AccountEdit{{Action: command.PutAccount, Account: name, Parent: &parent}}
		for u := range users {
			edits = append(edits, command.AccountEdit{Action: command.PutAccount, Account: name, User: fmt.Sprintf("user%02d-%05d", u, p)})
		}
		if _, err := b.do(&command.EditAccounts{Actor: steward, Edits: edits}); err != nil {
			return err
		}
	}
	b.blind = false
	b.s.View()
	opened, accounts := time.Since(begun), heapInUse()
	begun = time.Now()
	for i := range projects * users {
		if _, err := b.do(grantTo(fmt.Sprintf("project%05d", i%projects), fmt.Sprintf("user%02d-%05d", i/projects, i%projects))); err != nil {
			return err
		}
	}
	granted, full := time.Since(begun), heapInUse()
	v := b.s.View()
	var snapshot bytes.Buffer
	begun = time.Now()
	if err := v.Encode(&snapshot); err != nil {
		return err
	}
	written := time.Since(begun)
	const reads = 100_000
	var sum accounting.Credits
	read, _, err := took(func() error {
		for i := range reads {
			at := i * 7919 % (projects * users)
			chain := v.ChainOf(fmt.Sprintf("project%05d", at%projects), fmt.Sprintf("user%02d-%05d", at/projects, at%projects))
			sum += v.Credits().Usable(chain, new(accounting.BucketScope), b.now) / accounting.Credits(reads)
		}
		return nil
	})
	if err != nil || sum == 0 {
		return fmt.Errorf("nothing is usable: %w", err)
	}
	out.table(fmt.Sprintf("%d accounts with %d users, a bucket each, in the state", projects, projects*users),
		"heap of accounts", "heap of their credits", "opened in", "granted in", "snapshot", "written in", "CPU of a balance read")
	out.row(mib(accounts-empty), mib(full-accounts), seconds(opened), seconds(granted), mib(uint64(snapshot.Len())), seconds(written), micros(read, reads))
	runtime.KeepAlive(b)
	return nil
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func mib(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }
