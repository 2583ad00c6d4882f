package accounting

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// draws returns numbers in [0, n).
type draws func(n int64) int64

// seeded returns numbers from a seed.
func seeded(seed uint64) draws {
	return rand.New(rand.NewPCG(seed, 1)).Int64N
}

// drawn returns numbers from bytes, two for each; 0 when none are left.
func drawn(data []byte) draws {
	return func(n int64) int64 {
		var x int64
		for range 2 {
			if len(data) > 0 {
				x, data = x<<8|int64(data[0]), data[1:]
			}
		}
		return x * n >> 16
	}
}

// game is a ledger and the oracle, in the same sequence of commands.
type game struct {
	testing.TB
	draws
	l     *Ledger
	o     *oracle
	audit Audit
	past  []deed
}

func newGame(t testing.TB, d draws) *game {
	return &game{TB: t, draws: d, l: New(), o: newOracle()}
}

func (g *game) amount() Credits { return Credits(1 + g.draws(int64(50*One))) }

// oneOf returns any of the choices.
func oneOf[T any](g *game, choices ...T) T { return choices[g.draws(int64(len(choices)))] }

// chainFor returns the current path of an account.
func (g *game) chainFor() PayerPath {
	path := oneOf(g, "o", "o/p", "o/p/ana", "o/q/bob", "o/r")
	if g.draws(20) == 0 {
		return chainOf(path) // may be stale
	}
	var c PayerPath
	for id := PayerID(path); id != ""; {
		c = append(c, id)
		n := g.o.nodes[id]
		if n == nil {
			return append(c, chainOf(string(id))[1:]...)
		}
		id = n.parent
	}
	return c
}

// next returns any command.
func (g *game) next() deed {
	often := []string{"place", "place", "dispatch", "dispatch", "meter", "meter", "roll", "settle", "refund", "resize", "amend"}
	verbs := []string{"grant", "grant", "place", "settle", "void", "correct", "budget", "withdraw", "price", "close", "move"}
	if g.draws(3) > 0 {
		verbs = often
	}
	d := deed{
		verb: oneOf(g, verbs...), at: g.l.Now().Add(time.Duration(g.draws(int64(time.Hour))) - 10*time.Minute),
		key: fmt.Sprint(g.draws(1000)), natural: g.draws(3) == 0,
	}
	if g.draws(12) == 0 { // another day
		d.at = d.at.Add(time.Duration(g.draws(int64(40 * time.Hour))))
	}
	if len(g.past) == 0 {
		d.at = base
	}
	if g.draws(3) == 0 {
		d.asked[0] = byte(1 + g.draws(3))
	}
	if k, _, found := g.l.due.First(); found && g.draws(10) == 0 {
		d.at = max(d.at, k.at) // to the nanosecond
	}
	if len(g.past) > 0 && g.draws(12) == 0 { // a repeat, possibly for something else
		was := g.past[g.draws(int64(len(g.past)))]
		if g.draws(3) > 0 {
			was.at = d.at
			return was
		}
		d.key = was.key
	}
	g.fill(&d)
	return d
}

func (g *game) fill(d *deed) {
	d.chain, d.amount, d.gpuType, d.gpus = g.chainFor(), g.amount(), oneOf(g, "H100", "A100"), 1+g.draws(8)
	d.lien, d.bucket = LienID{Job: cluster.JobID(1 + g.draws(8)), Attempt: 1}, BucketID(g.draws(8))
	d.total, d.yes = g.draws(20*msPerHour)-msPerHour, g.draws(2) == 0
	d.budget = Budget{Limit: d.amount * 20, Hard: g.draws(2) == 0, Window: Window(g.draws(3))}
	d.sample = Sample{Lien: d.lien, Segment: int(g.draws(2)), Epoch: uint64(g.draws(3)), Number: uint64(g.draws(50)), Count: g.draws(40 * msPerHour)}
	d.name = fmt.Sprint("period", g.draws(5))
	switch d.verb {
	case "grant":
		d.grant = Grant{Owner: d.chain, Class: BucketClass(1 + g.draws(4)), Amount: d.amount * 4, Cutoff: d.yes, Priority: int32(g.draws(2))}
		g.vary(&d.grant, d)
	case "place":
		rates := []Rate{{"H100", 2 * One}, {"A100", One * 6 / 5}}
		d.claim = Claim{ID: d.lien, Chain: d.chain, Partition: oneOf(g, "main", "spot"), QOS: "standard",
			Rates: rates[:1+g.draws(2)], Amount: d.amount, Floating: g.draws(4) == 0}
		if g.draws(4) == 0 {
			d.claim.Partitions = oneOf(g, []string{"main", "spot"}, []string{"main"})
		}
	case "price", "close":
		d.when = d.at.Add(time.Duration(g.draws(int64(4*time.Hour))) - 2*time.Hour)
	case "refund", "correct":
		d.amount = d.amount/10 + 1
		d.when = oneOf(g, 0, d.at.Add(-time.Hour), d.at.Add(-time.Hour), d.at.Add(time.Hour))
	case "move":
		d.chains = g.places()
	}
}

// places returns new parents: of one account, which may be impossible, or of all of them in another
// tree.
func (g *game) places() (all []PayerPath) {
	if g.draws(3) == 0 {
		return []PayerPath{oneOf(g, PayerPath{"o/p", "o"}, PayerPath{"o/p", "o/q", "o"}, PayerPath{"o/p"}, PayerPath{"o/p/ana", "o/q", "o"}, PayerPath{"o/p/ana", "o/p", "o"})}
	}
	names := []PayerID{"o", "o/p", "o/q", "o/r", "o/p/ana"}
	for i := range names {
		j := i + int(g.draws(int64(len(names)-i)))
		names[i], names[j] = names[j], names[i]
		c := PayerPath{names[i]}
		if above := g.draws(int64(i + 1)); above > 0 {
			c = append(c, all[above-1]...)
		}
		all = append(all, c)
	}
	if g.draws(2) == 0 { // in any order, and possibly one is wrong now
		all[0], all[len(all)-1] = all[len(all)-1], all[0]
		all = all[g.draws(2):]
	}
	return all
}

// vary gives a grant times, a scope or a code.
func (g *game) vary(x *Grant, d *deed) {
	if g.draws(2) == 0 {
		x.Expires = d.at.Add(time.Duration(1 + g.draws(int64(20*time.Hour))))
	}
	switch g.draws(10) {
	case 0:
		x.Effective = d.at.Add(time.Duration(1 + g.draws(int64(4*time.Hour))))
	case 1:
		x.Scope.GPUTypes = []string{oneOf(g, "H100", "A100")}
	case 2:
		x.Scope.Partitions = []string{"main"}
	case 3:
		x.Scope.Permille = 1 + g.draws(1000)
	case 4:
		x.Scope.PerJob = g.amount()
	case 5:
		x.Code, x.MaxRedemptions = "spring", 2
	case 6, 7, 8: // as early as others, so that the owners decide which pays first
		x.Effective, x.Class, x.Priority, x.Expires = base, Promo, 0, 0
	}
}

// step runs one command with both and compares everything.
func (g *game) step() {
	d := g.next()
	g.past = append(g.past, d)
	quiet := g.l.Clone()
	quiet.Drain()
	r, err := d.on(g.l)
	wantR, why := g.o.answer(&d)
	if !reflect.DeepEqual(r, wantR) || !agrees(err, why) {
		g.fatalf("the answer is %+v, %v, the oracle's %+v, %+v", r, err, wantR, why)
	}
	if got, want := g.text(), g.o.state(); got != want {
		g.fatalf("ledger and oracle have\n%s", differ(got, want))
	}
	if err != nil && (d.natural || !quiet.keys.Has(d.key)) { // I12
		quiet.Advance(d.at)
		quiet.forgetKeys(1000)
		if quiet.digest-keySum(quiet) != g.l.digest-keySum(g.l) || quiet.seq != g.l.seq {
			g.fatalf("refused with %v, it changed something", err)
		}
	}
	for _, e := range g.l.Drain() {
		if again, err := ReadRow(e.AppendRow(nil)); err != nil || !reflect.DeepEqual(again, e) {
			g.fatalf("entry %+v reads as %+v, %v", e, again, err)
		}
		if err := g.audit.Add(&e); err != nil {
			g.fatalf("%v", err)
		}
	}
	for _, bad := range []error{g.l.Check(), g.audit.CompareWith(g.l)} {
		if bad != nil {
			g.fatalf("%v", bad)
		}
	}
	if g.l.recount() != g.l.digest {
		g.fatalf("the digest is of something else")
	}
}

// differ returns the lines that differ.
func differ(got, want string) string {
	var out strings.Builder
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) {
			return out.String() + "more lines"
		}
		if a[i] != b[i] {
			fmt.Fprintf(&out, "%s\n%s\n", a[i], b[i])
		}
	}
	return out.String()
}

func (g *game) fatalf(format string, args ...any) {
	g.Helper()
	var log strings.Builder
	for _, d := range g.past[max(0, len(g.past)-8):] {
		fmt.Fprintf(&log, "%s %s %+v\n", time.Duration(d.at-base), d.key, d.relevant())
	}
	g.Fatalf("%safter %d commands: %s", log.String(), len(g.past), fmt.Sprintf(format, args...))
}

func keySum(l *Ledger) (sum uint64) {
	for key, record := range l.keys.All() {
		sum += hashKey(key, record)
	}
	return sum
}

// agrees compares a refusal with the oracle's.
func agrees(err error, w *want) bool {
	if err == nil || w == nil {
		return err == nil && w == nil
	}
	var s *Shortfall
	if errors.As(err, &s) && w.node != "" {
		return errors.Is(s.Why, w.why) && s.Node == w.node && int64(s.Need) == w.need && int64(s.Available) == w.available && int64(s.Limit) == w.limit
	}
	return w.node == "" && errors.Is(err, w.why)
}

// answer returns the oracle's answer to a command, with keys and time.
func (o *oracle) answer(d *deed) (r Receipt, why *want) {
	if d.verb == "meter" {
		o.pass(d.at)
		o.meter(d.sample)
		return r, nil
	}
	text := fmt.Sprintf("%+v", d.relevant())
	asked := text
	if d.asked[0] > 0 {
		asked = fmt.Sprint("asked ", d.asked[0])
	}
	if k, known := o.keys[d.key]; known && !d.natural {
		if k.payload != text && k.payload != asked {
			return r, no(ErrKey)
		}
		if d.verb != "close" {
			r = k.receipt
			r.Again, r.At = true, k.at
		}
		return r, k.why
	}
	o.pass(d.at)
	o.repaid, o.lost = 0, 0
	why = o.does(d, &r)
	if r.Repaid, r.Lost = Credits(o.repaid), Credits(o.lost); why != nil {
		r = Receipt{}
	}
	if !d.natural && (why == nil || !fresh(why.why)) {
		o.keys[d.key] = oracleKey{asked, o.now, r, why}
	}
	return r, why
}

// relevant returns the part of a deed that is its command's payload.
func (d *deed) relevant() []any {
	switch d.verb {
	case "grant":
		return []any{d.verb, d.grant}
	case "place":
		return []any{d.verb, d.claim}
	case "void":
		return []any{d.verb, d.bucket}
	case "budget":
		return []any{d.verb, d.chain, d.budget}
	case "price":
		return []any{d.verb, d.gpuType, d.amount, d.when}
	case "resize":
		return []any{d.verb, d.lien, d.amount}
	case "dispatch":
		return []any{d.verb, d.lien, d.granted()}
	case "settle":
		return []any{d.verb, d.lien, d.total, d.yes}
	case "amend":
		return []any{d.verb, d.lien, d.total}
	case "refund", "correct":
		return []any{d.verb, d.lien, d.amount, d.when}
	case "move":
		return []any{d.verb, d.chains}
	case "close":
		return []any{d.verb, d.name, d.when}
	}
	if d.verb == "meter" {
		return []any{d.verb, d.sample}
	}
	return []any{d.verb, d.lien}
}

// text formats all balances of the ledger, as the oracle does.
func (g *game) text() string {
	var out strings.Builder
	for id, b := range g.l.buckets.All() {
		fmt.Fprintf(&out, "bucket %d: %d %d %d %d\n", id, b.Avail, b.Held, b.Spent, b.Expired+b.Void)
	}
	for id, n := range g.l.liens.All() {
		fmt.Fprintf(&out, "lien %s: %d of %d, %d due, cut short %t", id, n.State, int64(n.Amount), n.Due(), n.CutShort)
		for _, p := range n.Parts {
			fmt.Fprintf(&out, " %d:%d/%d/%d", p.Bucket, p.Held, p.Spent, p.Refunded)
		}
		fmt.Fprintln(&out)
	}
	for id, n := range g.l.nodes.All() {
		fmt.Fprintf(&out, "account %s: %d %d %d %d, used %d\n", id, n.Held, n.Spent, n.Debt, n.Owes, n.Used(g.l.now))
	}
	return out.String()
}

// TestOracle plays 512 seeded sequences: after every command answers, balances and refusals equal
// those of the oracle, the invariants hold, and the journal, summed from scratch, agrees. In the
// end the same commands give another ledger the same digest.
func TestOracle(t *testing.T) {
	refused := map[string]int{}
	for seed := range uint64(512) {
		g := newGame(t, seeded(seed))
		steps := 40
		if seed%32 == 0 {
			steps = 300
		}
		for range steps {
			g.step()
		}
		again := New()
		for _, d := range g.past {
			_, err := d.on(again)
			refused[d.verb+": "+strings.SplitN(fmt.Sprint(sentinel(err)), ":", 2)[0]]++
		}
		if again.Digest() != g.l.Digest() {
			t.Fatalf("seed %d: replayed, it is another ledger", seed)
		}
	}
	if testing.Verbose() {
		for _, k := range slices.Sorted(func(yield func(string) bool) {
			for k := range refused {
				if !yield(k) {
					return
				}
			}
		}) {
			t.Log(k, refused[k])
		}
	}
}

func allRemembered() []error {
	all := remembered()
	return all[:]
}

// sentinel returns the remembered error that an error wraps.
func sentinel(err error) error {
	for _, why := range append(allRemembered(), ErrAmount, ErrInvalid, ErrKey) {
		if errors.Is(err, why) {
			return why
		}
	}
	return err
}

// FuzzLedger looks for a sequence on which the ledger and the oracle disagree.
func FuzzLedger(f *testing.F) {
	for seed := range uint64(3) {
		data := make([]byte, 2000)
		r := rand.New(rand.NewPCG(seed, 9))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g := newGame(t, drawn(data))
		for range min(len(data)/40, 100) {
			g.step()
		}
	})
}

// recount computes the part of the digest that depends on the records from scratch. O(records).
func (l *Ledger) recount() (sum uint64) {
	for id, n := range l.nodes.All() {
		sum += n.hash(id)
	}
	for _, b := range l.buckets.All() {
		sum += b.hash()
	}
	for _, n := range l.liens.All() {
		sum += n.hash()
	}
	for k, p := range l.prices.All() {
		sum += hashPrice(k, p)
	}
	for code, n := range l.codes.All() {
		sum += hashCode(code, n)
	}
	for key, record := range l.keys.All() {
		sum += hashKey(key, record)
	}
	for _, c := range l.closes.All() {
		sum += c.hash()
	}
	return sum
}
