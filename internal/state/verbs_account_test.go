package state

import (
	"fmt"
	"sort"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/fairshare"
)

// ofAccounts carries out a line about accounts.
func (x *script) ofAccounts(verb, rest string) string {
	switch verb {
	case "account":
		return x.account(rest)
	case "accounts":
		return x.accounts()
	}
	return x.usage()
}

// account is "account ACTOR add|modify|delete|put NAME [user=U] [KEY=VALUE...] [+ add ...]".
func (x *script) account(rest string) string {
	who, rest, _ := strings.Cut(rest, " ")
	c := &command.EditAccounts{Actor: actor(who)}
	actions := map[string]command.AccountAction{"add": command.AddAccount, "modify": command.ModifyAccount, "delete": command.DeleteAccount, "put": command.PutAccount}
	for _, part := range strings.Split(rest, " + ") {
		w := split(part)
		if c.Request == (command.RequestID{}) {
			c.Request = request16(w)
		}
		e := command.AccountEdit{Action: actions[w.plain[0]], Account: w.plain[1], User: w.keys["user"], Partition: w.keys["partition"]}
		for key, value := range w.keys {
			list := strings.Split(value, ",")
			if value == "" {
				list = nil
			}
			n, yes := int64(cluster.SharesOfParent), value == "yes"
			if w.keys["shares"] != "parent" {
				n = w.number("shares", 0)
			}
			switch key {
			case "parent":
				e.Parent = &value
			case "shares":
				e.Shares = &n
			case "default":
				e.Default = &yes
			case "coordinators":
				e.Coordinators = &list
			case "qos":
				e.QOS = &list
			case "defaultqos":
				e.DefaultQOS = &value
			case "user", "partition", "key":
			default:
				set, gone, _, err := cluster.ParseLimits(key + "=" + value)
				if err != nil {
					x.t.Fatal(err)
				}
				e.Set, e.Unset = append(e.Set, set...), append(e.Unset, gone...)
			}
		}
		c.Edits = append(c.Edits, e)
	}
	return x.apply(c)
}

// accounts prints the tree, with the jobs that count in each account.
func (x *script) accounts() string {
	var out []string
	t := x.s.accounts.Tree()
	if t == nil {
		return "none"
	}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		var text []string
		for _, l := range n.Limits() {
			text = append(text, l.String())
		}
		scope, shares := cluster.LimitScope{Account: n.Account.Name}, n.Account.Shares
		path := n.Account.Name
		for at := n.Parent; at >= 0; at = t.Nodes[at].Parent {
			if n.User == nil || t.Nodes[at].Account != n.Account {
				path = t.Nodes[at].Account.Name + "/" + path
			}
		}
		if n.User != nil {
			scope, shares = cluster.ScopeOf(n.User.AssociationKey), n.User.Shares
			path += " " + n.User.User
			if n.User.Partition != "" {
				path += " on " + n.User.Partition
			}
			if n.User.Default {
				text = append([]string{"default"}, text...)
			}
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s shares %d jobs %d %s", path, shares, x.s.accounts.Queued(scope), strings.Join(text, " "))))
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// usage prints the usage, in billed hours and hours of each resource.
func (x *script) usage() string {
	var out []string
	half := x.s.policy.Scheduling.FairShare.HalfLife
	for u := range x.s.accounts.View().Used {
		key := u.AssociationKey
		who := key.User
		if key.Partition != "" {
			who += " on " + key.Partition
		}
		line := fmt.Sprintf("%q %s billed %.3f h", key.Account, who, float64(fairshare.UsageAt(u.Billed, x.now, half))/3.6e6)
		for _, r := range u.Raw {
			line += fmt.Sprintf(" %s %.3f", r.Resource, float64(fairshare.UsageAt(r.Usage, x.now, half))/3600)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// qos is "qos ACTOR NAME [extra=PERCENT] [half=DURATION] [require=yes] [LIMIT=VALUE...]".
func (x *script) qos(w scriptLine) string {
	p := *x.s.policy
	p.QOS = append([]cluster.QOS(nil), p.QOS...)
	for i := range p.QOS {
		if p.QOS[i].Name != w.plain[1] {
			continue
		}
		p.QOS[i].UsageExtra, p.QOS[i].Limits = int32(w.number("extra", 0)), nil
		p.QOS[i].Preempts = w.list("preempts")
		p.QOS[i].Open = (p.QOS[i].Open || w.has("open")) && !w.has("closed")
		p.QOS[i].PreemptMode, _ = cluster.ParsePreemptMode(w.keys["mode"])
		for key, value := range w.keys {
			if set, _, known, err := cluster.ParseLimits(key + "=" + value); known && err == nil {
				p.QOS[i].Limits = cluster.SortLimits(append(p.QOS[i].Limits, set...))
			}
		}
	}
	if d := w.duration("half"); d > 0 {
		p.Scheduling.FairShare.HalfLife = d
	}
	p.RequireAccount = w.keys["require"] == "yes"
	return x.apply(&command.ApplyPolicy{Actor: actor(w.plain[0]), Policy: p})
}
