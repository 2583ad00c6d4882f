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
	"github.com/greylag/greylag/pkg/cluster"
)

// money reads an amount.
func (w scriptLine) money(key string) int64 {
	text, there := w.keys[key]
	if !there {
		return 0
	}
	n, err := cluster.ParseMoney(text)
	if err != nil {
		panic(err)
	}
	return n
}

// market reads a market.
func market(word string) cluster.Market {
	m, err := cluster.ParseMarket(word)
	if err != nil {
		panic(err)
	}
	return m
}

// burstMode reads a mode.
func burstMode(word string) cluster.BurstMode {
	m, err := cluster.ParseBurstMode(word)
	if err != nil {
		panic(err)
	}
	return m
}

// burstOf reads what a submission says about leased nodes.
func burstOf(w scriptLine, spec *cluster.JobSpec) {
	mode := burstMode(w.keys["burst"])
	spec.Burst = cluster.Burst{Mode: mode, MaxCost: w.money("maxcost"), Regions: w.list("clouds"), Market: market(w.keys["market"])}
	if spec.Image = w.keys["image"]; mode > cluster.BurstNever && !w.has("bare") {
		spec.Image = cmp.Or(spec.Image, "busybox")
	}
}

// ofLeases runs the verbs about leased nodes.
func (x *script) ofLeases(verb string, w scriptLine) string {
	switch verb {
	case "burst":
		return x.burst(w)
	case "offers":
		return x.offers(w)
	case "launch":
		return x.apply(&command.CommitPlan{Plan: cluster.Plan{Index: uint64(w.number("plan", int64(x.index))), Launches: []cluster.Launch{x.launch(w)}}})
	case "lease":
		return x.apply(&command.UpdateLeases{Updates: []command.LeaseUpdate{x.leaseUpdate(w)}})
	case "endleases":
		c := &command.EndLeases{Request: request16(w), Actor: actor(w.plain[0]), Now: w.has("now"), Why: w.keys["why"]}
		for _, word := range w.plain[1:] {
			if word != "now" {
				c.Leases = append(c.Leases, cluster.LeaseID(id(word)))
			}
		}
		return x.apply(c)
	case "restored":
		return x.apply(&command.Restored{Taken: x.now})
	case "leases":
		return x.leases()
	case "offered":
		var lines []string
		for o := range x.s.View().Offers() {
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s (%s) %s: %s", o.Name, o.Market, cluster.FormatMoney(o.Price), o.Fault), ": "))
		}
		return strings.Join(lines, "\n")
	case "refused":
		var lines []string
		for _, r := range x.s.View().Snapshot().Burst.Refused {
			lines = append(lines, fmt.Sprintf("%s at %s: %s", r.Job, r.At.Sub(1), r.Why))
		}
		return strings.Join(lines, "\n")
	case "left":
		var lines []string
		left := x.s.View().Snapshot().Burst.Left
		for _, name := range []string{"", "root", "uni", "physics", "maths"} {
			if amount, limited := left[name]; limited {
				lines = append(lines, fmt.Sprintf("%q %s", name, cluster.FormatMoney(amount)))
			}
		}
		return strings.Join(lines, "\n")
	}
	var lines []string
	v := x.s.View()
	if verb == "pauses" {
		for p := range v.Pauses() {
			lines = append(lines, fmt.Sprintf("%s (%s) failures %d since %s until %s: %s", p.Offer.Name, p.Offer.Market, p.Failures, p.Since.Sub(1), p.Until.Sub(1), p.Why))
		}
	} else {
		for _, row := range v.Spend(x.now) {
			line := fmt.Sprintf("%q spent %s committed %s", row.Account, cluster.FormatMoney(row.Spent), cluster.FormatMoney(row.Committed))
			if row.Limited {
				line += " of " + cluster.FormatMoney(row.Limit)
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// burst puts a policy with a cloud partition in force: burst root monthly=100 budgets=uni:50,physics:20.
func (x *script) burst(w scriptLine) string {
	p := cluster.DefaultPolicy()
	p.Partitions = append(p.Partitions, cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}, Down: w.has("down")})
	p.Fencing, p.MaxRestarts = w.has("fencing"), 5
	p.Partitions[0].Burst, p.Partitions[1].DefaultTime = burstMode(w.keys["default"]), time.Hour
	b := &p.Burst
	b.On, b.MonthlyLimit, b.MaxNodes, b.Regions, b.IdleTime = !w.has("off"), w.money("monthly"), int32(w.number("max", 0)), w.list("regions"), w.duration("idle")
	b.Currency = cmp.Or(w.keys["currency"], b.Currency)
	if w.has("nocloud") {
		p.Partitions, b.On = p.Partitions[:1], false
	}
	for _, one := range w.list("budgets") {
		name, amount, _ := strings.Cut(one, ":")
		n, err := cluster.ParseMoney(amount)
		if err != nil {
			x.t.Fatal(err)
		}
		b.Budgets = append(b.Budgets, cluster.RentalBudget{Account: name, Monthly: n})
	}
	for i := range p.QOS {
		p.QOS[i].Open = true
		if p.QOS[i].Name == "interactive" {
			p.QOS[i].Burst = burstMode(w.keys["interactive"])
		}
		if p.QOS[i].Name == "batch" {
			p.QOS[i].MinOnDemand = int32(w.number("ondemand", 0))
		}
	}
	return x.apply(&command.ApplyPolicy{Actor: actor(w.plain[0]), Policy: p})
}

// offers is a list of NAME,MARKET,REGION,PRICE[,GPUS], priced age= ago.
func (x *script) offers(w scriptLine) string {
	c := &command.SetOffers{Currency: w.keys["currency"]}
	for _, one := range w.plain {
		f := strings.Split(one, ",")
		o := cluster.Offer{Name: f[0], Market: market(f[1]), Region: f[2], Type: "p5", PricedAt: x.now.Add(-w.duration("age")), CPUs: 16, Memory: 64 * cluster.GiB, GPUType: "h100", Boot: 2 * time.Minute}
		price, err := cluster.ParseMoney(f[3])
		if err != nil {
			x.t.Fatal(err)
		}
		if o.Price = price; len(f) > 4 {
			n, _ := strconv.Atoi(f[4])
			o.GPUs = int32(n)
		}
		c.Offers = append(c.Offers, o)
	}
	return x.apply(c)
}

// launch is "1 p5/a spot nodes=2 price=4 life=2h cost=16": without cost what the nodes cost at most.
func (x *script) launch(w scriptLine) cluster.Launch {
	c := cluster.Launch{
		Job: id(w.plain[0]), Offer: cluster.OfferKey{Name: w.plain[1], Market: market(w.plain[2])}, Nodes: int32(w.number("nodes", 1)),
		MaxPrice: w.money("price"), Lifetime: w.duration("life"), Cost: w.money("cost"), Why: "it starts 3 hours earlier",
	}
	if j, known := x.s.job(c.Job); known {
		c.Attempt = j.Attempt + 1
	}
	c.Attempt = cluster.Attempt(w.number("attempt", int64(c.Attempt)))
	if c.Cost == 0 {
		c.Cost = int64(float64(c.MaxPrice) * c.Lifetime.Hours() * float64(c.Nodes))
	}
	return c
}

// leaseUpdate is "1 started instance=i-1 price=3.50".
func (x *script) leaseUpdate(w scriptLine) command.LeaseUpdate {
	events := []string{"", "requested", "delayed", "failed", "started", "reclaimed", "ended", "console", "mismatched"}
	u := command.LeaseUpdate{
		Lease: cluster.LeaseID(id(w.plain[0])), Event: command.LeaseEvent(slices.Index(events, w.plain[1])), Try: uint32(w.number("try", 1)),
		Instance: w.keys["instance"], Address: w.keys["address"], Price: w.money("price"), Capacity: w.has("capacity"), Interrupted: w.has("interrupted"),
		Cost: -1, Why: w.keys["why"], Console: w.keys["console"],
	}
	if token := w.keys["token"]; token != "" {
		u.Token = sha256.Sum256([]byte(token))
	}
	if w.keys["cost"] != "" {
		u.Cost = w.money("cost")
	}
	if w.keys["at"] != "" {
		u.At = cluster.Instant(w.duration("at")) + 1
	}
	u.Reclaim = x.later(w, "in")
	return u
}

// later returns an instant that is a time from now; 0 without the key.
func (x *script) later(w scriptLine, key string) cluster.Instant {
	if w.keys[key] == "" {
		return 0
	}
	return x.now.Add(w.duration(key))
}

// leases lists the leases.
func (x *script) leases() string {
	var lines []string
	for l := range x.s.View().Leases() {
		line := fmt.Sprintf("%d %s launch %d of %d for %s/%d", l.ID, l.State, l.Launch, l.Nodes, l.Job, l.Attempt)
		if l.For != 0 {
			line += " held"
		}
		if l.Instance != "" {
			line += fmt.Sprintf(" %s at %s", l.Instance, cluster.FormatMoney(l.Price))
		}
		for _, at := range []struct {
			what string
			at   cluster.Instant
		}{{"deadline", l.Deadline}, {"expires", l.Expires}, {"idle since", l.IdleSince}, {"reclaim", l.Reclaim}, {"ended", l.Ended}} {
			if at.at != 0 {
				line += fmt.Sprintf(" %s %s", at.what, at.at.Sub(1))
			}
		}
		if l.Reserved > 0 {
			line += " committed " + cluster.FormatMoney(l.Reserved)
		} else {
			line += " cost " + cluster.FormatMoney(l.Cost)
		}
		if l.Interrupted {
			line += " interrupted"
		}
		if l.Console != "" {
			line += " console " + l.Console
		}
		if l.Why != "" {
			line += " (" + l.Why + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
