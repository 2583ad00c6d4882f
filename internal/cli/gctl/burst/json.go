package burst

import (
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// lease is a lease in JSON. Money is in the currency, as a decimal number in a string.
type lease struct {
	Lease       uint64     `json:"lease"`
	Launch      uint64     `json:"launch"`
	Node        string     `json:"node"`
	Job         string     `json:"job"`
	Account     string     `json:"account,omitempty"`
	Offer       string     `json:"offer"`
	Market      string     `json:"market"`
	Region      string     `json:"region"`
	State       string     `json:"state"`
	Since       *time.Time `json:"since"`
	Created     *time.Time `json:"created"`
	Launched    *time.Time `json:"launched,omitempty"`
	Joined      *time.Time `json:"joined,omitempty"`
	Expires     *time.Time `json:"expires,omitempty"`
	Reclaim     *time.Time `json:"reclaim,omitempty"`
	Ended       *time.Time `json:"ended,omitempty"`
	Interrupted bool       `json:"interrupted,omitempty"`
	MaxPrice    string     `json:"max_price"`
	Price       string     `json:"price"`
	Committed   string     `json:"committed"`
	Cost        string     `json:"cost"`
	Instance    string     `json:"instance,omitempty"`
	Address     string     `json:"address,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	Console     string     `json:"console,omitempty"`
}

func leaseJSON(l *greylagv1.Lease) lease {
	return lease{
		Lease: l.Id, Launch: l.Launch, Node: l.Node, Job: l.Job, Account: l.Account, Offer: l.Offer, Market: l.Market, Region: l.Region,
		State: wire.Word(l.State), Since: tool.Timestamp(l.Since), Created: tool.Timestamp(l.Created), Launched: tool.Timestamp(l.Launched),
		Joined: tool.Timestamp(l.Joined), Expires: tool.Timestamp(l.Expires), Reclaim: tool.Timestamp(l.Reclaim), Ended: tool.Timestamp(l.Ended),
		Interrupted: l.Interrupted, MaxPrice: cluster.FormatMoney(l.MaxPrice), Price: cluster.FormatMoney(l.Price),
		Committed: cluster.FormatMoney(l.Reserved), Cost: cluster.FormatMoney(l.Cost), Instance: l.Instance, Address: l.Address,
		Reason: l.Why, Console: l.Console,
	}
}

// offer is the price of a kind of cloud node in JSON.
type offer struct {
	Name        string     `json:"name"`
	Market      string     `json:"market"`
	Region      string     `json:"region"`
	Type        string     `json:"type"`
	Price       string     `json:"price"`
	Priced      *time.Time `json:"priced"`
	CPUs        int32      `json:"cpus"`
	Memory      int64      `json:"memory_bytes"`
	GPUs        int32      `json:"gpus"`
	GPUType     string     `json:"gpu_type,omitempty"`
	BootSeconds int64      `json:"boot_seconds"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
	Fault       string     `json:"fault,omitempty"`
}

// spend is the spend of one account in JSON; of the cluster without an account.
type spend struct {
	Account   string  `json:"account,omitempty"`
	Spent     string  `json:"spent"`
	Committed string  `json:"committed"`
	Limit     *string `json:"limit,omitempty"`
}

// leases is what gctl burst list, offers and budget print in JSON.
type leases struct {
	Enabled  bool    `json:"enabled"`
	Currency string  `json:"currency"`
	Leases   []lease `json:"leases"`
	Offers   []offer `json:"offers"`
	Spend    []spend `json:"spend"`
}

func (t commands) leases(answer *greylagv1.ListLeasesResponse) leases {
	out := leases{Enabled: answer.Enabled, Currency: answer.Currency, Leases: []lease{}, Offers: []offer{}, Spend: []spend{}}
	for _, l := range answer.Leases {
		out.Leases = append(out.Leases, leaseJSON(l))
	}
	for _, o := range answer.Offers {
		out.Offers = append(out.Offers, offer{
			Name: o.Name, Market: o.Market, Region: o.Region, Type: o.Type, Price: cluster.FormatMoney(o.Price), Priced: tool.Timestamp(o.Priced),
			CPUs: o.Cpus, Memory: o.Memory, GPUs: o.Gpus, GPUType: o.GpuType, BootSeconds: int64(o.Boot.AsDuration() / time.Second),
			PausedUntil: tool.Timestamp(o.Paused), PauseReason: o.PauseReason, Fault: o.Fault,
		})
	}
	for _, s := range answer.Spend {
		x := spend{Account: s.Account, Spent: cluster.FormatMoney(s.Spent), Committed: cluster.FormatMoney(s.Committed)}
		if s.Limited {
			limit := cluster.FormatMoney(s.Limit)
			x.Limit = &limit
		}
		out.Spend = append(out.Spend, x)
	}
	return out
}

// choice is the decision for one job in JSON.
type choice struct {
	Job     string     `json:"job"`
	User    string     `json:"user"`
	Planned *time.Time `json:"planned,omitempty"`
	Saved   int64      `json:"saved_seconds"`
	Offer   string     `json:"offer,omitempty"`
	Market  string     `json:"market,omitempty"`
	Nodes   int32      `json:"nodes"`
	Value   string     `json:"value"`
	Cost    string     `json:"cost"`
	Lease   bool       `json:"lease"`
	Reason  string     `json:"reason"`
}

// choices is what gctl burst plan prints in JSON.
type choices struct {
	Enabled  bool     `json:"enabled"`
	Currency string   `json:"currency"`
	Choices  []choice `json:"choices"`
}

func (t commands) choices(answer *greylagv1.PlanBurstResponse) choices {
	out := choices{Enabled: answer.Enabled, Currency: answer.Currency, Choices: []choice{}}
	for _, x := range answer.Choices {
		out.Choices = append(out.Choices, choice{
			Job: x.Job, User: x.User, Planned: tool.Timestamp(x.Planned), Saved: int64(x.Saved.AsDuration() / time.Second), Offer: x.Offer,
			Market: x.Market, Nodes: x.Nodes, Value: cluster.FormatMoney(x.Value), Cost: cluster.FormatMoney(x.Cost), Lease: x.Lease, Reason: x.Why,
		})
	}
	return out
}
