package faultsim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// site is the organisation above all accounts of a workload, if jobs cost something.
const site = "site"

// editsAtOnce is the number of accounts and users in one command.
const editsAtOnce = 1000

// open sets prices, adds the accounts of the workload, and grants each credits.
func (x *faultSim) open(f *sim.Machine) error {
	if len(x.Prices) == 0 {
		return nil
	}
	types := map[string]bool{}
	for i := range f.Nodes {
		for _, g := range f.Nodes[i].GPUs {
			types[g.Type] = true
		}
	}
	for name := range types {
		x.rates = append(x.rates, name)
	}
	slices.Sort(x.rates)
	for _, name := range x.rates {
		price, known := x.Prices[name]
		if !known {
			price = x.Prices[""]
		}
		if err := x.Must(&command.ChangeCredits{Actor: sim.Administrator(), Action: command.SetPrice, GPUType: name, Amount: price}); err != nil {
			return err
		}
	}
	for edits := range slices.Chunk(x.tree(), editsAtOnce) {
		if err := x.Must(&command.EditAccounts{Actor: sim.Administrator(), Edits: edits}); err != nil {
			return err
		}
	}
	for _, name := range x.accounts {
		c := &command.ChangeCredits{Actor: sim.Administrator(), Action: command.GrantCredits, Account: name, Class: accounting.Purchase, Amount: x.Grant}
		if err := x.Must(c); err != nil {
			return err
		}
	}
	return nil
}

// tree returns edits that add the accounts and users of the workload, in order of their names.
func (x *faultSim) tree() (edits []command.AccountEdit) {
	users := map[cluster.AssociationKey]bool{}
	for i := range x.Jobs {
		spec := x.Jobs[i].Spec
		users[cluster.AssociationKey{Account: cmp.Or(spec.Account, noAccount), User: spec.Owner.User}] = true
	}
	keys := make([]cluster.AssociationKey, 0, len(users))
	for k := range users {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b cluster.AssociationKey) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.User, b.User))
	})
	parent := site
	edits = append(edits, command.AccountEdit{Action: command.PutAccount, Account: site})
	for _, k := range keys {
		if n := len(x.accounts); n == 0 || x.accounts[n-1] != k.Account {
			x.accounts = append(x.accounts, k.Account)
			edits = append(edits, command.AccountEdit{Action: command.PutAccount, Account: k.Account, Parent: &parent})
		}
		edits = append(edits, command.AccountEdit{Action: command.PutAccount, Account: k.Account, User: k.User})
	}
	return edits
}

// administer performs one random action of an administrator.
func (x *faultSim) administer() error {
	r := x.streams.Of(faults.Admins)
	deeds := []func(*rand.Rand) error{x.drain, x.removeNode, x.reserve, x.setPolicy, x.rerun, x.release}
	if len(x.Prices) > 0 {
		deeds = append(deeds, x.grant, x.grant, x.void, x.price, x.budget, x.refund, x.correct, x.closePeriod, x.limit, x.move)
	}
	x.count("administrators_changes")
	return deeds[r.IntN(len(deeds))](r)
}

// change sends a change of credits.
func (x *faultSim) change(c *command.ChangeCredits) error {
	c.Actor = sim.Administrator()
	_, err := x.send(c, &c.Request)
	return err
}

// payer returns an account, or a user of one.
func (x *faultSim) payer(r *rand.Rand) (account, user string) {
	if r.IntN(3) == 0 {
		spec := x.Jobs[r.IntN(len(x.Jobs))].Spec
		return cmp.Or(spec.Account, noAccount), spec.Owner.User
	}
	if r.IntN(6) == 0 {
		return site, ""
	}
	return x.accounts[r.IntN(len(x.accounts))], ""
}

// someCredits returns an amount of up to the given number of hours of a GPU.
func (x *faultSim) someCredits(r *rand.Rand, hours int64) accounting.Credits {
	price, err := x.State.View().Credits().Price(x.rates[r.IntN(len(x.rates))], x.Now)
	if err != nil || price == 0 {
		price = accounting.One
	}
	return accounting.Credits(1 + r.Int64N(int64(price)*hours))
}

func (x *faultSim) grant(r *rand.Rand) error {
	c := &command.ChangeCredits{Action: command.GrantCredits, Amount: x.someCredits(r, 500), Class: accounting.BucketClass(1 + r.IntN(4)), Priority: int32(r.IntN(2)), Cutoff: r.IntN(3) == 0}
	c.Account, c.User = x.payer(r)
	if r.IntN(2) == 0 {
		c.Expires = x.Now.Add(faults.Within(r, 3*24*time.Hour))
	}
	switch r.IntN(6) {
	case 0:
		c.Scope.PerJob = x.someCredits(r, 4)
	case 1:
		c.Scope.Permille = 1 + r.Int64N(1000)
	case 2:
		c.Effective = x.Now.Add(faults.Within(r, 12*time.Hour))
		if c.Expires > 0 {
			c.Expires = max(c.Expires, c.Effective.Add(time.Hour))
		}
	}
	return x.change(c)
}

func (x *faultSim) void(r *rand.Rand) error {
	n := len(x.audit.book.Buckets)
	return x.change(&command.ChangeCredits{Action: command.VoidBucket, Bucket: accounting.BucketID(1 + len(x.accounts) + r.IntN(max(1, n)))})
}

func (x *faultSim) price(r *rand.Rand) error {
	name := x.rates[r.IntN(len(x.rates))]
	price, err := x.State.View().Credits().Price(name, x.Now)
	if err != nil {
		return nil
	}
	price = max(1, price/1000*accounting.Credits(700+r.IntN(700)))
	return x.change(&command.ChangeCredits{Action: command.SetPrice, GPUType: name, Amount: price})
}

func (x *faultSim) budget(r *rand.Rand) error {
	c := &command.ChangeCredits{Action: command.SetBudget, Hard: r.IntN(2) == 0, Window: accounting.Window(r.IntN(3))}
	c.Account, c.User = x.payer(r)
	if r.IntN(3) > 0 {
		id := accounting.PayerID(c.Account)
		if c.User != "" {
			id += accounting.PayerID("/" + c.User)
		}
		n := x.State.View().Credits().Payer(id)
		c.Amount = n.Held + n.Spent + x.someCredits(r, 200)
	}
	return x.change(c)
}

// someJob returns one of the latest jobs.
func (x *faultSim) someJob(r *rand.Rand) cluster.JobID {
	at := max(0, x.Next-1-r.IntN(200))
	return x.Results[at].ID
}

func (x *faultSim) refund(r *rand.Rand) error {
	return x.change(&command.ChangeCredits{Action: command.RefundJob, Job: x.someJob(r), Amount: x.someCredits(r, 3)})
}

func (x *faultSim) correct(r *rand.Rand) error {
	return x.change(&command.ChangeCredits{Action: command.CorrectJob, Job: x.someJob(r), Amount: x.someCredits(r, 3)})
}

func (x *faultSim) closePeriod(r *rand.Rand) error {
	end := x.Now.Add(-faults.Within(r, 24*time.Hour))
	return x.change(&command.ChangeCredits{Action: command.ClosePeriod, Period: fmt.Sprint("period-", x.requests), Effective: end})
}

func (x *faultSim) edit(e command.AccountEdit) error {
	e.Action = command.ModifyAccount
	c := &command.EditAccounts{Actor: sim.Administrator(), Edits: []command.AccountEdit{e}}
	_, err := x.send(c, &c.Request)
	return err
}

// limit sets a limit on an account for a day.
func (x *faultSim) limit(r *rand.Rand) error {
	l := cluster.Limit{Kind: cluster.GrpTRES, Resource: cluster.ResourceGPU, Value: 1 + r.Int64N(16)}
	if r.IntN(2) == 0 {
		l = cluster.Limit{Kind: cluster.GrpJobs, Value: 1 + r.Int64N(8)}
	}
	name := x.accounts[r.IntN(len(x.accounts))]
	x.In(faults.Within(r, 24*time.Hour), func() error {
		return x.edit(command.AccountEdit{Account: name, Unset: []cluster.Limit{l}})
	})
	return x.edit(command.AccountEdit{Account: name, Set: []cluster.Limit{l}})
}

// move moves an account below another, or below the organisation again.
func (x *faultSim) move(r *rand.Rand) error {
	parent := site
	if r.IntN(2) == 0 {
		parent = x.accounts[r.IntN(len(x.accounts))]
	}
	return x.edit(command.AccountEdit{Account: x.accounts[r.IntN(len(x.accounts))], Parent: &parent})
}

// drain drains a node for some hours.
func (x *faultSim) drain(r *rand.Rand) error {
	h := x.anyHost(faults.Admins)
	act := func(action command.NodeAction) error {
		c := &command.UpdateNodes{Actor: sim.Administrator(), Names: []string{h.node.Name}, Action: action, Reason: "maintenance"}
		_, err := x.send(c, &c.Request)
		return err
	}
	x.In(faults.Within(r, 2*time.Hour), func() error { return act(command.ResumeNodes) })
	return act(command.DrainNodes)
}

// removeNode removes a silent node; it registers again when it is back.
func (x *faultSim) removeNode(*rand.Rand) error {
	for _, name := range x.names {
		if h := x.hosts[name]; !h.reachable {
			c := &command.UpdateNodes{Actor: sim.Administrator(), Names: []string{name}, Action: command.RemoveNodes, Reason: "gone", Force: true}
			_, err := x.send(c, &c.Request)
			return err
		}
	}
	return nil
}

// reserve reserves a node for an hour that begins soon.
func (x *faultSim) reserve(r *rand.Rand) error {
	start := x.Now.Add(faults.Within(r, 6*time.Hour))
	return x.applyPolicy(func(p *cluster.Policy) {
		p.Scheduling.Reservations = slices.DeleteFunc(slices.Clone(p.Scheduling.Reservations), func(o cluster.Reservation) bool { return o.End <= x.Now })
		p.Scheduling.Reservations = append(p.Scheduling.Reservations, cluster.Reservation{
			Name: fmt.Sprint("r", x.requests), Start: start, End: start.Add(time.Hour), Users: []string{"root"}, Nodes: []string{x.anyHost(faults.Admins).node.Name}, Why: "maintenance",
		})
	})
}

// setPolicy changes one setting of the policy.
func (x *faultSim) setPolicy(r *rand.Rand) error {
	hours := func(of ...int) time.Duration { return time.Duration(of[r.IntN(len(of))]) * time.Hour }
	return x.applyPolicy(func(p *cluster.Policy) {
		switch r.IntN(5) {
		case 0:
			p.Credits.FaultRefund = hours(0, 1, 4, 1000)
		case 1:
			p.Credits.LienWindow = hours(0, 0, 2, 24)
		case 2:
			p.Credits.Floating = !p.Credits.Floating
		case 3:
			p.MaxRestarts = 1 + r.Int32N(8)
		case 4:
			p.Scheduling.PromiseHorizon = hours(0, 1, 6)
		}
	})
}

// applyPolicy changes the policy.
func (x *faultSim) applyPolicy(change func(*cluster.Policy)) error {
	p := *x.State.View().Policy()
	change(&p)
	c := &command.ApplyPolicy{Actor: sim.Administrator(), Policy: p}
	_, err := x.send(c, &c.Request)
	return err
}

// rerun requeues a job.
func (x *faultSim) rerun(r *rand.Rand) error {
	c := &command.UpdateJobs{Actor: sim.Administrator(), Action: command.RequeueJobs, Jobs: []cluster.JobRef{{ID: x.someJob(r), Index: cluster.NoIndex}}}
	_, err := x.send(c, &c.Request)
	return err
}

// release releases all held jobs.
func (x *faultSim) release(*rand.Rand) error {
	c := &command.UpdateJobs{Actor: sim.Administrator(), Action: command.ReleaseJobs}
	for j := range x.State.View().Jobs(0) {
		if j.State == cluster.Pending && j.Hold != cluster.NotHeld {
			c.Jobs = append(c.Jobs, j.Ref())
		}
	}
	_, err := x.send(c, &c.Request)
	return err
}
