package accounting

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

// base is midnight of 1 June 2026.
var base = cluster.InstantOf(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))

// TestScenarios plays testdata/*.txt. The invariants and the journal are checked after every
// command.
func TestScenarios(t *testing.T) {
	scenario.Cases(t, "testdata/*.txt", func(t *testing.T, text string) string { return newPlay(t).run(text) })
}

// play is a ledger with the names of a script.
type play struct {
	*testing.T
	l       *Ledger
	audit   *Audit
	journal []Entry
	at      cluster.Instant
	keys    int
	buckets map[string]BucketID
	done    []func(*Ledger) // every command so far, to be replayed
	out     strings.Builder
}

func newPlay(t *testing.T) *play {
	return &play{T: t, l: New(), audit: &Audit{}, at: base, buckets: map[string]BucketID{}}
}

func (p *play) run(script string) string {
	p.Helper()
	for line := range strings.Lines(script) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		args := arguments{map[string]string{}, nil, p.T}
		for _, w := range words[1:] {
			if k, v, ok := strings.Cut(w, "="); ok {
				args.named[k] = v
			} else {
				args.plain = append(args.plain, w)
			}
		}
		p.do(words[0], args)
		for _, e := range p.l.Drain() {
			p.journal = append(p.journal, e)
			if err := p.audit.Add(&e); err != nil {
				p.Fatalf("%s: %v", line, err)
			}
		}
		if err := p.l.Check(); err != nil {
			p.Fatalf("%s: %v", line, err)
		}
		if err := p.audit.CompareWith(p.l); err != nil {
			p.Fatalf("%s: %v", line, err)
		}
	}
	return p.out.String()
}

type arguments struct {
	named map[string]string
	plain []string
	t     *testing.T
}

// credits reads decimal credits, or micro-credits with the suffix u.
func (a arguments) credits(text string) Credits {
	if micro, ok := strings.CutSuffix(text, "u"); ok {
		return Credits(a.int(micro))
	}
	c, err := ParseCredits(text)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func (a arguments) span(name string) time.Duration {
	text := a.named[name]
	if text == "" {
		return 0
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		return time.Duration(a.int(days)) * 24 * time.Hour
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		a.t.Fatal(err)
	}
	return d
}

func (a arguments) int(text string) int64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}

func (a arguments) list(name string) []string {
	if a.named[name] == "" {
		return nil
	}
	return strings.Split(a.named[name], ",")
}

func (a arguments) lien() LienID {
	job, attempt, _ := strings.Cut(a.plain[0], ".")
	return LienID{cluster.JobID(a.int(job)), cluster.Attempt(a.int(attempt))}
}

// instant returns base plus a duration; 0 without one.
func (a arguments) instant(name string) cluster.Instant {
	if a.named[name] == "" {
		return 0
	}
	return base.Add(a.span(name))
}

// chainOf reads org/project/user.
func chainOf(path string) PayerPath {
	var c PayerPath
	for path != "" {
		c = append(c, PayerID(path))
		i := strings.LastIndexByte(path, '/')
		path = path[:max(i, 0)]
	}
	return c
}

func (p *play) stamp(a arguments) Stamp {
	p.keys++
	key := a.named["key"]
	if key == "" {
		key = "k" + strconv.Itoa(p.keys)
	}
	return Stamp{At: p.at, Key: key}
}

func (p *play) do(verb string, a arguments) {
	money, known := commands[verb]
	if known {
		before, stamp := p.l.Clone(), p.stamp(a)
		p.did(func() { _, _ = money(p, stamp, a) })
		r, err := money(p, stamp, a)
		p.answer(verb, a, r, err)
		if err != nil && (fresh(err) || r.Again) && fmt.Sprint(p.l.seq) != fmt.Sprint(before.seq) {
			p.Errorf("%s was refused and wrote entries", verb)
		}
		return
	}
	switch verb {
	case "at":
		p.at = base.Add(arguments{map[string]string{"at": a.plain[0]}, nil, p.T}.span("at"))
	case "meter":
		p.meter(a)
	case "sweep":
		at := p.at
		p.did(func() { p.l.Advance(at) })
		p.l.Advance(at)
	case "failover":
		p.failover()
	case "crash":
		p.crash()
	case "race":
		p.race(a)
	case "journal":
		p.printJournal(uint64(a.int(a.plain[0])))
	case "provisional":
		fmt.Fprintf(&p.out, "provisional: %v\n", p.l.Provisionals(p.at))
	case "forget":
		fmt.Fprintf(&p.out, "forgot %d\n", p.l.Forget(p.at, 1000))
	case "show":
		p.show(a)
	case "bill":
		p.bill(a)
	case "verify":
		p.verify(a)
	default:
		p.Fatalf("no verb %s", verb)
	}
}

func (p *play) answer(verb string, a arguments, r Receipt, err error) {
	out := &p.out
	fmt.Fprintf(out, "%s %s:", verb, strings.Join(a.plain[:min(1, len(a.plain))], ""))
	if r.Again {
		fmt.Fprint(out, " (again)")
	}
	if err != nil {
		fmt.Fprintf(out, " refused: %v\n", err)
		return
	}
	for _, f := range []struct {
		name string
		c    Credits
	}{{"held", r.Held}, {"charged", r.Charged}, {"released", r.Released}, {"returned", r.Returned}, {"debt", r.Debt}, {"repaid", r.Repaid}, {"lost", r.Lost}} {
		if f.c != 0 {
			fmt.Fprintf(out, " %s %s", f.name, f.c)
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(out, " warning: %s %s of %s", w.Node, w.Used, w.Limit)
	}
	fmt.Fprintln(out, " ok")
}

func (p *play) show(a arguments) {
	out := &p.out
	for _, what := range a.plain {
		if id, known := p.buckets[what]; known {
			b, _ := p.l.Bucket(id)
			fmt.Fprintf(out, "%s: avail %s held %s spent %s expired %s void %s\n", what, b.Avail, b.Held, b.Spent, b.Expired, b.Void)
			continue
		}
		if strings.Contains(what, ".") {
			n, _ := p.l.Lien(arguments{plain: []string{what}, t: p.T}.lien())
			held, spent, back := n.sum()
			fmt.Fprintf(out, "lien %s: %s held %s spent %s refunded %s accrued %s", what, n.State, held, spent, back, n.Accrued())
			if len(n.Segments) > 0 && n.State == Open {
				fmt.Fprintf(out, " funded until %s", p.l.FundedUntil(&n, cluster.Never).Sub(base))
			}
			if n.Unproven {
				fmt.Fprint(out, " unproven")
			}
			if n.CutShort {
				fmt.Fprint(out, ", cut short")
			}
			fmt.Fprintln(out)
			continue
		}
		n := p.l.Payer(PayerID(what))
		fmt.Fprintf(out, "%s: held %s spent %s debt %s", what, n.Held, n.Spent, n.Debt)
		if n.Budget.Limit > 0 {
			fmt.Fprintf(out, " left %s of %s", n.Budget.Limit-n.Used(p.l.now), n.Budget.Limit)
		}
		fmt.Fprintln(out)
	}
}

// verify audits the journal from the start, with one entry damaged if a number is given.
func (p *play) verify(a arguments) {
	var audit Audit
	bad := uint64(a.int(a.named["damage"]))
	for _, e := range p.journal {
		if e.Seq == bad {
			e.Amount ^= 1
		}
		if err := audit.Add(&e); err != nil {
			fmt.Fprintf(&p.out, "verify: %v\n", err)
			return
		}
	}
	fmt.Fprintf(&p.out, "verify: %d entries are whole\n", audit.seq)
}
