package accounting

import (
	"fmt"
	"strings"
)

// commands are the verbs of scenarios that change money.
var commands = map[string]func(*play, Stamp, arguments) (Receipt, error){
	"price": func(p *play, s Stamp, a arguments) (Receipt, error) {
		return p.l.SetPrice(s, Rate{a.plain[0], a.credits(a.plain[1])}, a.instant("from"))
	},
	"grant":  (*play).grant,
	"budget": (*play).budget,
	"void": func(p *play, s Stamp, a arguments) (Receipt, error) {
		return p.l.Void(s, p.buckets[a.plain[0]])
	},
	"place": (*play).place,
	"resize": func(p *play, s Stamp, a arguments) (Receipt, error) {
		return p.l.Resize(s, a.lien(), a.credits(a.plain[1]))
	},
	"dispatch": func(p *play, s Stamp, a arguments) (Receipt, error) {
		var on []GPUs
		for i := 1; i+1 < len(a.plain); i += 2 {
			on = append(on, GPUs{a.plain[i], a.int(a.plain[i+1])})
		}
		return p.l.StartBilling(s, a.lien(), on...)
	},
	"roll": func(p *play, s Stamp, a arguments) (Receipt, error) { return p.l.ChargeAccrued(s, a.lien()) },
	"settle": func(p *play, s Stamp, a arguments) (Receipt, error) {
		return p.l.Settle(s, Settlement{a.lien(), p.total(a), a.named["provisional"] == "yes"})
	},
	"amend": func(p *play, s Stamp, a arguments) (Receipt, error) {
		return p.l.Amend(s, a.lien(), p.total(a))
	},
	"withdraw": func(p *play, s Stamp, a arguments) (Receipt, error) { return p.l.Withdraw(s, a.lien()) },
	"move": func(p *play, s Stamp, a arguments) (Receipt, error) {
		var chains []PayerPath // each a path, as it will be; below= is that of the others
		for _, name := range a.plain {
			chains = append(chains, append(PayerPath{PayerID(name)}, chainOf(a.named["below"])...))
		}
		if list := a.list("to"); list != nil { // or each with its ancestors, nearest first
			chains = nil
			for _, path := range list {
				var c PayerPath
				for _, name := range strings.Split(path, "<") {
					c = append(c, PayerID(name))
				}
				chains = append(chains, c)
			}
		}
		return p.l.Move(s, chains...)
	},
	"refund":  func(p *play, s Stamp, a arguments) (Receipt, error) { return p.l.Refund(s, refundOf(a)) },
	"correct": func(p *play, s Stamp, a arguments) (Receipt, error) { return p.l.Correct(s, refundOf(a)) },
	"close": func(p *play, s Stamp, a arguments) (Receipt, error) {
		c, err := p.l.ClosePeriod(s, a.plain[0], a.instant("end"))
		if err == nil {
			fmt.Fprintf(&p.out, "closed %s at entry %d\n", c.Name, c.Seq)
		}
		return Receipt{}, err
	},
}

func refundOf(a arguments) Refund {
	return Refund{Lien: a.lien(), Amount: a.credits(a.plain[1]), Corrects: uint64(a.int(a.named["corrects"])), Effective: a.instant("effective")}
}

// total is GPUs times a run's length; -1 when the script leaves it to the counter.
func (p *play) total(a arguments) int64 {
	if a.named["ran"] == "" {
		return -1
	}
	n, _ := p.l.Lien(a.lien())
	return a.span("ran").Milliseconds() * n.Segments[len(n.Segments)-1].GPUs
}

func (p *play) grant(s Stamp, a arguments) (Receipt, error) {
	class := map[string]BucketClass{"promo": Promo, "grant": GrantClass, "purchase": Purchase, "": Purchase}[a.named["class"]]
	g := Grant{
		Owner: chainOf(a.named["to"]), Class: class, Amount: a.credits(a.plain[1]),
		Effective: a.instant("effective"), Expires: a.instant("expires"), Priority: int32(a.int(a.named["priority"])),
		Scope: BucketScope{
			GPUTypes: a.list("types"), Partitions: a.list("partitions"), QOS: a.list("qos"),
			Permille: a.int(a.named["permille"]),
		},
		Cutoff: a.named["cutoff"] == "yes", Code: a.named["code"], MaxRedemptions: a.int(a.named["redeems"]),
	}
	if cap := a.named["perjob"]; cap != "" {
		g.Scope.PerJob = a.credits(cap)
	}
	r, err := p.l.Grant(s, g)
	if err == nil {
		p.buckets[a.plain[0]] = r.Bucket
	}
	return r, err
}

func (p *play) budget(s Stamp, a arguments) (Receipt, error) {
	w := map[string]Window{"day": Daily, "month": Monthly}[a.named["window"]]
	return p.l.SetBudget(s, chainOf(a.plain[0]), Budget{a.credits(a.plain[1]), a.named["soft"] != "yes", w})
}

// place quotes and places a lien; amount= overrides the quote's.
func (p *play) place(s Stamp, a arguments) (Receipt, error) {
	c := Claim{ID: a.lien(), Chain: chainOf(a.named["by"]), Partition: a.named["partition"], QOS: a.named["qos"], Floating: a.named["floating"] == "yes"}
	if text := a.named["amount"]; text != "" {
		c.Amount, c.Rates = a.credits(text), []Rate{{"H100", 2 * One}}
		return p.l.CreateLien(s, c)
	}
	q, err := p.l.Quote(QuoteRequest{a.list("types"), a.int(a.named["gpus"]), a.span("limit").Milliseconds()}, max(s.At, p.l.Now()))
	if err != nil {
		return Receipt{}, err
	}
	c.Rates, c.Amount = q.Rates, q.Amount
	return p.l.CreateLien(s, c)
}

// meter passes a sample, repeated times= times; ran= is the wall time of this epoch.
func (p *play) meter(a arguments) {
	n, _ := p.l.Lien(a.lien())
	segment := max(0, len(n.Segments)-1)
	x := Sample{Lien: a.lien(), Segment: segment, Epoch: uint64(a.int(a.named["epoch"])), Number: uint64(a.int(a.named["n"]))}
	if len(n.Segments) > 0 {
		x.Count = a.span("ran").Milliseconds() * n.Segments[segment].GPUs
	}
	batch := []Sample{x}
	for range a.int(a.named["times"]) - 1 {
		batch = append(batch, x)
	}
	at := p.at
	p.did(func() { p.l.Meter(at, batch) })
	m := p.l.Meter(at, batch)
	fmt.Fprintf(&p.out, "meter %s: counted %d stale %d regressed %d excess %d\n", a.lien(), m.Counted, m.Stale, m.Regressed, m.Excess)
}
