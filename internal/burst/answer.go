package burst

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/greylag/greylag/pkg/cluster"
)

// The limits of an answer.
const (
	MaxPrice     = cluster.MaxOfferPrice // of an hour of one instance, in millionths
	maxOffers    = 2000
	maxInstances = 10_000
	maxWord      = 128            // bytes of a name, an ID, a type or an address
	maxText      = 512            // bytes of a message
	maxSkew      = 24 * time.Hour // between a time that is about now and now
	maxBoot      = 24 * time.Hour
	maxCPUs      = 65_536
	maxGPUs      = 1024
	minMemory    = 1 << 20
	maxMemory    = 1 << 50
	oneInAll     = 1_000_000 // a probability of 1, in millionths
)

// firstLaunch is before every possible launch.
var firstLaunch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// readAnswer reads the answer of a program that ended with an exit status. Only a well-formed error object with
// [ExitPermanent] is a refusal: interpreters also end with this status when a program crashes.
func readAnswer(output []byte, status int) (*Answer, *Error) {
	var a Answer
	err := decode(output, &a)
	switch {
	case status == ExitOK && err != nil:
		return nil, fail(ErrAnswer, "%s", line(err.Error()))
	case status == ExitOK && a.Error != nil:
		return nil, fail(ErrAnswer, "exit status 0 with the error %s", line(a.Error.Message))
	case status == ExitOK:
		return &a, nil
	case err == nil && a.Error != nil && failureKinds[a.Error.Kind] != nil && (status == ExitPermanent || status == ExitTryLater):
		return nil, &Error{Kind: failureKinds[a.Error.Kind], Message: line(a.Error.Message), unknown: status == ExitTryLater}
	case status == ExitTryLater:
		return nil, fail(ErrTryLater, "exit status %d", status)
	case err == nil && a.Error != nil:
		return nil, fail(ErrProgram, "exit status %d with the unknown kind of error %s", status, word(a.Error.Kind))
	}
	return nil, fail(ErrProgram, "exit status %d without an error object", status)
}

// decode reads exactly one JSON object without unknown fields.
func decode(text []byte, into any) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return errors.New("no output")
	}
	r := json.NewDecoder(bytes.NewReader(text))
	r.DisallowUnknownFields()
	if err := r.Decode(into); err != nil {
		return err
	}
	if _, err := r.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text follows the JSON object")
	}
	return nil
}

// prices checks an answer of [CallOffers].
func (p *Program) prices(a *Answer) (Prices, *Error) {
	if len(a.Currency) != 3 || strings.Trim(a.Currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return Prices{}, fail(ErrAnswer, "currency %s is not a code such as USD", word(a.Currency))
	}
	if len(a.Offers) > maxOffers {
		return Prices{}, fail(ErrAnswer, "%d offers, at most %d", len(a.Offers), maxOffers)
	}
	prices := Prices{Currency: a.Currency}
	for i := range a.Offers {
		o, bad := p.offer(&a.Offers[i])
		if bad == nil {
			prices.Offers = append(prices.Offers, o)
			continue
		}
		if p.cfg.Strict {
			bad.Message = "offer " + word(a.Offers[i].Name) + ": " + bad.Message
			return Prices{}, bad
		}
		p.logOnce("the provider program reports an offer that is not used", "offer", line(a.Offers[i].Name), bad.Message)
		if o.Name != "" && o.Market != cluster.AnyMarket { // else it has no key
			prices.Offers = append(prices.Offers, cluster.Offer{Name: o.Name, Market: o.Market, Region: o.Region, Type: o.Type, Fault: bad.Message})
		}
	}
	slices.SortStableFunc(prices.Offers, func(a, b cluster.Offer) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Market, b.Market))
	})
	for i := 1; i < len(prices.Offers); i++ {
		if prices.Offers[i].Key() == prices.Offers[i-1].Key() {
			return Prices{}, fail(ErrAnswer, "offer %s: listed twice for the market %s", prices.Offers[i].Name, prices.Offers[i].Market)
		}
	}
	return prices, nil
}

// offer checks an offer. With an error it returns what is well formed.
func (p *Program) offer(o *Offer) (cluster.Offer, *Error) {
	c := checker{now: p.now()}
	out := cluster.Offer{
		Name: c.word("name", o.Name), Region: c.word("region", o.Region), Type: c.word("type", o.Type),
		Price: c.price("price", o.Price), PricedAt: c.near("priced_at", o.PricedAt),
		CPUs:   int32(c.between("cpus", int64(o.CPUs), 1, maxCPUs)),
		Memory: cluster.Bytes(c.between("memory_bytes", o.MemoryBytes, minMemory, maxMemory)),
		GPUs:   int32(c.between("gpus", int64(o.GPUs), 0, maxGPUs)),
		Boot:   time.Duration(c.between("boot_seconds", o.BootSeconds, 0, int64(maxBoot/time.Second))) * time.Second,
		Risk:   int32(c.between("interruption_ppm", int64(o.InterruptionPPM), 0, oneInAll)),
	}
	if o.GPUs > 0 {
		out.GPUType = c.word("gpu_type", o.GPUType)
		out.GPUMemory = cluster.Bytes(c.between("gpu_memory_bytes", o.GPUMemoryBytes, minMemory, maxMemory))
	}
	market, err := cluster.ParseMarket(o.Market)
	if err != nil || market == cluster.AnyMarket {
		c.fault("market %s is not spot or on-demand", word(o.Market))
	}
	out.Market = market
	return out, c.bad
}

// instances checks the instances of an answer and sorts them by ID. Those of other clusters are left out.
func (p *Program) instances(a *Answer) ([]cluster.Instance, *Error) {
	if len(a.Instances) > maxInstances {
		return nil, fail(ErrAnswer, "%d instances, at most %d", len(a.Instances), maxInstances)
	}
	var list []cluster.Instance
	foreign := 0
	for i := range a.Instances {
		if a.Instances[i].Cluster != p.cfg.ClusterID {
			foreign++
			continue
		}
		x, bad := p.instance(&a.Instances[i])
		if bad != nil {
			return nil, bad
		}
		list = append(list, x)
	}
	if foreign > 0 {
		p.cfg.Log.Warn("the provider program lists instances of other clusters; they are ignored", "instances", foreign)
	}
	slices.SortFunc(list, func(a, b cluster.Instance) int { return cmp.Compare(a.ID, b.ID) })
	for i := 1; i < len(list); i++ {
		if list[i].ID == list[i-1].ID {
			return nil, fail(ErrAnswer, "instance %s: listed twice", list[i].ID)
		}
	}
	return list, nil
}

// instance checks an instance. A field that it may lack is left out if it is odd, so that the instance is not lost for it:
// its ID and its tags are enough to end it.
func (p *Program) instance(x *Instance) (cluster.Instance, *Error) {
	c := checker{now: p.now()}
	out := cluster.Instance{
		ID: c.word("id", x.ID), Launch: cluster.LeaseID(x.Launch), Try: x.Try, Terminated: x.State == StateTerminated, Interrupted: x.Interrupted, Cost: -1,
	}
	switch {
	case x.State != StatePending && x.State != StateRunning && x.State != StateEnding && x.State != StateTerminated:
		c.fault("state %s is not pending, running, ending or terminated", word(x.State))
	case x.Launch == 0 || x.Try == 0:
		c.fault("launch or try is 0")
	}
	for _, odd := range details(&out, x, c.now) {
		if p.cfg.Strict {
			c.fault("%s", odd)
		} else if c.bad == nil {
			p.logOnce("the provider program reports a field of an instance that is ignored", "instance", out.ID, odd)
		}
	}
	if c.bad != nil {
		c.bad.Message = "instance " + word(x.ID) + ": " + c.bad.Message
	}
	return out, c.bad
}

// details reads the fields that an instance may lack, and returns what is odd about them.
func details(out *cluster.Instance, x *Instance, now time.Time) (odd []string) {
	read := func(f func(c *checker)) {
		c := checker{now: now}
		if f(&c); c.bad != nil {
			odd = append(odd, c.bad.Message)
		}
	}
	read(func(c *checker) { out.Type = c.optional("type", x.Type) })
	read(func(c *checker) { out.Address = c.optional("address", x.Address) })
	if x.Price != "" {
		read(func(c *checker) { out.Price = c.price("price", x.Price) })
	}
	read(func(c *checker) { out.Launched = c.launched(x.LaunchedAt) })
	if out.Terminated && x.Cost != "" {
		read(func(c *checker) { out.Cost = c.cost(x.Cost) })
	}
	if !out.Terminated && !x.ReclaimAt.IsZero() {
		read(func(c *checker) { out.Reclaim = c.near("reclaim_at", x.ReclaimAt) })
	}
	return odd
}

// launched checks an answer of [CallLaunch]. It returns the instances of the launch also with an error.
func (p *Program) launched(a *Answer, l *LaunchRequest) ([]cluster.Instance, *Error) {
	list, bad := p.instances(a)
	if bad != nil {
		return nil, bad
	}
	own := slices.DeleteFunc(slices.Clone(list), func(x cluster.Instance) bool { return x.Launch != l.Launch || x.Try != l.Try })
	c := checker{now: p.now()}
	for i := range own {
		c.near("launched_at", own[i].Launched.Time())
	}
	switch {
	case len(own) < len(a.Instances):
		return own, fail(ErrForeign, "%d of %d", len(a.Instances)-len(own), len(a.Instances))
	case len(own) != l.Nodes:
		return own, fail(ErrCount, "%d, not %d", len(own), l.Nodes)
	}
	return own, c.bad
}

// checker converts fields, and keeps the first fault.
type checker struct {
	now time.Time
	bad *Error
}

func (c *checker) fault(format string, args ...any) {
	if c.bad == nil {
		c.bad = fail(ErrAnswer, format, args...)
	}
}

// word checks a name, which has no spaces.
func (c *checker) word(field, text string) string {
	if text == "" {
		c.fault("%s is missing", field)
	}
	return c.optional(field, text)
}

func (c *checker) optional(field, text string) string {
	if len(text) > maxWord || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		c.fault("%s %s is not a word of at most %d ASCII characters", field, word(text), maxWord)
		return ""
	}
	return text
}

// launched checks when an instance was launched.
func (c *checker) launched(at time.Time) cluster.Instant {
	if at.Before(firstLaunch) || at.After(c.now.Add(maxSkew)) {
		c.fault("launched_at %s is missing or out of range", at.Format(time.RFC3339))
		return 0
	}
	return cluster.InstantOf(at)
}

// cost checks what an instance has cost; -1 for unknown.
func (c *checker) cost(text string) int64 {
	n, err := cluster.ParseMoney(text)
	if err != nil {
		c.fault("cost: %v", err)
		return -1
	}
	return n
}

func (c *checker) price(field, text string) int64 {
	n, err := cluster.ParseMoney(text)
	switch {
	case err != nil:
		c.fault("%s: %v", field, err)
	case n == 0 || n > MaxPrice:
		c.fault("%s %s is out of range, above 0 to %d", field, word(text), MaxPrice/cluster.OneUnit)
	default:
		return n
	}
	return 0
}

// near checks a time that is less than a day from now.
func (c *checker) near(field string, at time.Time) cluster.Instant {
	if d := at.Sub(c.now); d < -maxSkew || d > maxSkew {
		c.fault("%s %s is more than a day from now", field, at.Format(time.RFC3339))
		return 0
	}
	return cluster.InstantOf(at)
}

func (c *checker) between(field string, n, least, most int64) int64 {
	if n < least || n > most {
		c.fault("%s %d is out of range, %d to %d", field, n, least, most)
	}
	return n
}

// line returns a text of a program as one line.
func line(text string) string { return cluster.Sanitize(strings.TrimSpace(text), maxText) }

// word returns a short quoted text of a program.
func word(text string) string { return `"` + cluster.Sanitize(text, maxWord) + `"` }

// consoleEnd returns the last cluster.MaxConsole bytes of a console output, without control characters except line
// feeds.
func consoleEnd(text string) string {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && cluster.UnsafeToDisplay(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.ReplaceAll(text, "\r\n", "\n"), "?"))
	text = text[max(0, len(text)-cluster.MaxConsole):]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}
