package journalcheck

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// What entries state as their justification, and the checks of it.

// rate is the price of a GPU-hour of a type.
type rate struct {
	gpuType string
	price   int64
}

// terms are the terms of a bucket.
type terms struct {
	owner                      []string
	class                      uint64
	amount, effective, expires int64
	gpuTypes, partitions, qos  []string
	permille, perJob           int64
	there                      bool
	priority                   int64
	cutoff                     bool
	code                       string
	uses                       int64
}

// purpose is the payer and the job that a bucket pays for.
type purpose struct {
	chain, partitions []string
	qos               string
	rates             []rate
	floating          bool
	on                []string
	amount            int64
	since             int64 // when its lien was placed
	there             bool
}

// stretch is GPUs that an attempt had for some time, by type.
type stretch struct {
	since, millis int64
	types         []string
	gpus, prices  []int64
}

// The kinds of bills.
const (
	counted = iota
	corrected
	givenBack
)

// charge is the amount of an attempt at an entry.
type charge struct {
	kind      uint64
	final     bool
	stretches []stretch
	left      int64
	there     bool
}

// justification is what an entry states; each part may be absent.
type justification struct {
	terms  terms
	cause  purpose
	charge charge
}

func (r *rowReader) yes() bool { return r.unsigned() == 1 }

func (r *rowReader) texts() (all []string) {
	for n := r.unsigned(); n > 0 && !r.bad; n-- {
		all = append(all, r.text())
	}
	return all
}

func (r *rowReader) justification() (g justification) {
	if g.terms.there = r.yes(); g.terms.there {
		r.unsigned() // its length
		r.terms(&g.terms)
	}
	if g.cause.there = r.yes(); g.cause.there {
		r.unsigned()
		x := &g.cause
		x.chain, x.partitions, x.qos = r.texts(), r.texts(), r.text()
		for n := r.unsigned(); n > 0 && !r.bad; n-- {
			x.rates = append(x.rates, rate{r.text(), r.signed()})
		}
		x.floating, x.on, x.amount, x.since = r.yes(), r.texts(), r.signed(), r.signed()
	}
	if g.charge.there = r.yes(); g.charge.there {
		r.unsigned()
		x := &g.charge
		x.kind, x.final = r.unsigned(), r.yes()
		for n := r.unsigned(); n > 0 && !r.bad; n-- {
			s := stretch{since: r.signed(), millis: r.signed()}
			for types := r.unsigned(); types > 0 && !r.bad; types-- {
				s.types, s.gpus, s.prices = append(s.types, r.text()), append(s.gpus, r.signed()), append(s.prices, r.signed())
			}
			x.stretches = append(x.stretches, s)
		}
		x.left = r.signed()
	}
	return g
}

func (r *rowReader) terms(x *terms) {
	x.owner, x.class, x.amount, x.effective, x.expires = r.texts(), r.unsigned(), r.signed(), r.signed(), r.signed()
	x.priority = r.signed()
	r.unsigned() // the length of the scope
	x.gpuTypes, x.partitions, x.qos, x.permille, x.perJob = r.texts(), r.texts(), r.texts(), r.signed(), r.signed()
	x.cutoff, x.code, x.uses = r.yes(), r.text(), r.signed()
}

// check returns an error if an entry's justification does not allow it.
func (b *Book) check(e *Entry) error {
	var bill *Bill
	if e.of.Job != 0 {
		bill = b.billOf(e)
	}
	if e.terms.there {
		b.terms[e.to.bucket] = &e.terms
	}
	if bill != nil && e.from.bucket != 0 && (e.kind == setAside || e.kind == overshot) {
		bill.into[e.from.bucket] += e.amount
	}
	if bill != nil && e.to.bucket != 0 && (e.kind == released || e.kind == refunded) {
		bill.into[e.to.bucket] -= e.amount
	}
	if e.from.kind == inBucket && (e.kind == setAside || e.kind == overshot || e.kind == repaid) {
		if err := b.mayPay(e, bill); err != nil {
			return err
		}
	}
	if e.kind == captured || e.kind == overshot || e.kind == refunded {
		return bill.recount(e)
	}
	return nil
}

// mayPay returns an error if a bucket may not pay.
func (b *Book) mayPay(e *Entry, of *Bill) error {
	t, x := b.terms[e.from.bucket], &e.cause
	switch {
	case !x.there || len(x.chain) == 0 || x.chain[0] != e.node:
		return fmt.Errorf("it does not say for whom bucket %d pays", e.from.bucket)
	case t == nil:
		return fmt.Errorf("bucket %d pays, and no entry states its terms", e.from.bucket)
	case !slices.Contains(x.chain, t.owner[0]):
		return fmt.Errorf("bucket %d of %s pays for %s", e.from.bucket, t.owner[0], e.node)
	case e.at < t.effective || t.expires != 0 && e.at >= t.expires:
		return fmt.Errorf("bucket %d pays at %d, and is good from %d to %d", e.from.bucket, e.at, t.effective, t.expires)
	}
	if e.kind == repaid {
		if len(t.gpuTypes)+len(t.partitions)+len(t.qos) > 0 || t.perJob+t.permille > 0 {
			return fmt.Errorf("bucket %d pays a debt, and has a scope", e.from.bucket)
		}
		return nil
	}
	of.rates = nil
	if !x.floating {
		of.rates = x.rates
	}
	types := slices.Clone(x.on)
	for _, r := range x.rates {
		types = append(types, r.gpuType)
	}
	if beyond(t.gpuTypes, types) || beyond(t.partitions, x.partitions) || beyond(t.qos, []string{x.qos}) {
		return fmt.Errorf("bucket %d pays beyond its scope, %+v: %+v", e.from.bucket, *t, *x)
	}
	if put := of.into[e.from.bucket]; t.perJob > 0 && put > t.perJob || t.permille > 0 && put > x.amount/1000*t.permille+x.amount%1000*t.permille/1000 {
		return fmt.Errorf("bucket %d pays %d of attempt %v", e.from.bucket, put, e.of)
	}
	return nil
}

func beyond(allowed, used []string) bool {
	return len(allowed) > 0 && slices.ContainsFunc(used, func(x string) bool {
		profile, _, _ := strings.Cut(x, "@") // a MIG instance: 1g.10gb@h100:8
		return !slices.Contains(allowed, profile)
	})
}

// recount requires a charge of interval × price, and a refund of metered time to leave no less than
// that.
func (b *Bill) recount(e *Entry) error {
	c := &e.charge
	switch {
	case !c.there:
		return errors.New("it does not say what is charged")
	case c.kind == givenBack && e.kind == refunded:
		b.GivenBack += e.amount
		return nil
	case c.kind != counted:
		return nil
	}
	if err := b.goesOn(c.stretches); err != nil {
		return err
	}
	due := int64(0)
	for i, s := range c.stretches {
		end := e.at
		if i+1 < len(c.stretches) {
			end = c.stretches[i+1].since
		}
		all := int64(0)
		for _, n := range s.gpus {
			all += n
		}
		if lasted := (end-s.since)/1_000_000 + 5001; s.millis > all*lasted {
			return fmt.Errorf("%d GPU-milliseconds of %d GPUs in %d ms", s.millis, all, lasted)
		}
		due += s.due(s.millis)
		for n, price := range s.prices {
			if want := quotedFor(b.rates, s.types[n]); len(b.rates) > 0 && price != want {
				return fmt.Errorf("type %s costs %d, and %d was quoted", s.types[n], price, want)
			}
		}
	}
	if e.kind == refunded {
		if b.counted -= e.amount; b.counted < due {
			return fmt.Errorf("attempt %v is left with %d and comes to %d", e.of, b.counted, due)
		}
		return nil
	}
	if b.counted += e.amount; b.counted+c.left != due {
		return fmt.Errorf("attempt %v was charged %d, %d is to come, and it comes to %d", e.of, b.counted, c.left, due)
	}
	return nil
}

// goesOn requires a bill to begin as the previous one: an amount at a price stays at that price,
// whatever it costs later.
func (b *Bill) goesOn(now []stretch) error {
	for i := range min(len(b.stretches), len(now)) {
		was, is := b.stretches[i], now[i]
		if was.since != is.since || !slices.Equal(was.types, is.types) || !slices.Equal(was.gpus, is.gpus) || !slices.Equal(was.prices, is.prices) {
			return fmt.Errorf("stretch %d of its bill was %+v and is %+v", i+1, was, is)
		}
	}
	b.stretches = now
	return nil
}

// quotedFor returns the price of a GPU under a quote. A MIG instance that was not quoted costs its share, in 1/56,
// of a parent that was.
func quotedFor(rates []rate, gpuType string) (price int64) {
	quoted := false
	for i, r := range rates {
		quoted = quoted || r.gpuType == gpuType
		if i == 0 || r.gpuType == gpuType && r.price < price {
			price = r.price
		}
	}
	_, of, instance := strings.Cut(gpuType, "@")
	if quoted || !instance {
		return price
	}
	parent, n, _ := strings.Cut(of, ":")
	share, _ := strconv.ParseInt(n, 10, 64)
	for _, r := range rates {
		if r.gpuType == parent {
			price = min(price, r.price/56*share+r.price%56*share/56)
		}
	}
	return price
}
