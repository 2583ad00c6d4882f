package accounting

import (
	"fmt"
	"strings"
	"time"
)

// did records a command that succeeded on the play's ledger.
func (p *play) did(do func()) {
	p.done = append(p.done, func(l *Ledger) {
		was, out := p.l, p.out.String()
		p.l = l
		do()
		p.l = was
		p.out = strings.Builder{}
		p.out.WriteString(out)
	})
}

// failover continues with a replica that was restored from a snapshot, and compares it with one
// that replayed every command.
func (p *play) failover() {
	restored, err := decoded(encoded(p, p.l))
	if err != nil {
		p.Fatal(err)
	}
	replayed := New()
	for _, do := range p.done {
		do(replayed)
	}
	_, head := p.l.Head()
	_, a := restored.Head()
	_, b := replayed.Head()
	if a != head || b != head || restored.Digest() != p.l.Digest() || replayed.Digest() != p.l.Digest() {
		p.Fatalf("the leader is %x, a restored replica %x, a replayed one %x", p.l.Digest(), restored.Digest(), replayed.Digest())
	}
	p.l = restored
	fmt.Fprintln(&p.out, "failover: state and head are the leader's")
}

// crash stops a replica after each command in turn: at every point the ledger is consistent, and
// every lien holds or spent its amount.
func (p *play) crash() {
	for n := range len(p.done) + 1 {
		l := New()
		for _, do := range p.done[:n] {
			do(l)
		}
		if err := l.Check(); err != nil {
			p.Fatalf("after %d commands: %v", n, err)
		}
		for id, x := range l.liens.All() {
			if held, spent, _ := x.sum(); x.State == Open && held+spent != x.Amount {
				p.Fatalf("after %d commands: lien %s of %s holds %s and spent %s", n, id, x.Amount, held, spent)
			}
		}
	}
	fmt.Fprintf(&p.out, "crash: sound at each of %d points\n", len(p.done)+1)
}

// race places many liens of one amount, as jobs from 1 on.
func (p *play) race(a arguments) {
	placed, refused := 0, 0
	for job := range a.int(a.plain[0]) {
		b := arguments{a.named, []string{fmt.Sprintf("%d.1", job+1)}, p.T}
		s := p.stamp(b)
		p.did(func() { _, _ = p.place(s, b) })
		if _, err := p.place(s, b); err == nil {
			placed++
		} else {
			refused++
		}
		for id, b := range p.l.buckets.All() {
			if b.Avail < 0 {
				p.Fatalf("bucket %d has %s after job %d", id, b.Avail, job+1)
			}
		}
	}
	fmt.Fprintf(&p.out, "race: %d placed, %d refused\n", placed, refused)
}

func (p *play) printJournal(from uint64) {
	for _, e := range p.journal {
		if e.Seq < from {
			continue
		}
		fmt.Fprintf(&p.out, "%d %s %s by %s, %s to %s, effective %s, booked %s", e.Seq, e.Kind, e.Amount, e.Node,
			e.Debit.Kind, e.Credit.Kind, e.Effective.Sub(base), e.At.Sub(base))
		if e.Late {
			fmt.Fprint(&p.out, ", late")
		}
		fmt.Fprintln(&p.out)
	}
}

// bill prints the bill of the newest entry about liens.
func (p *play) bill(a arguments) {
	for _, what := range a.plain {
		id := arguments{plain: []string{what}, t: p.T}.lien()
		var b *Bill
		for _, e := range p.journal {
			if e.Lien == id && e.Bill != nil {
				b = e.Bill
			}
		}
		for _, x := range b.Segments {
			fmt.Fprintf(&p.out, "bill %s: %s from %s:", id, x.cost(), x.Since.Sub(base).Round(time.Millisecond))
			for _, s := range x.Shares {
				fmt.Fprintf(&p.out, " %d %s at %s", s.Count, s.Type, s.Price)
			}
			fmt.Fprintf(&p.out, " for %s of GPUs\n", time.Duration(x.Millis)*time.Millisecond)
		}
	}
}
