// Package check is the conformance test of provider programs.
//
// It decides which calls a program gets and which answers keep the rules of docs/burst-provider.md. It rents one instance,
// with the tag of a cluster that does not exist, and ends whatever it started.
package check

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/pkg/cluster"
)

// Config says what is checked.
type Config struct {
	Provider burst.Config // its ClusterID is chosen here
	Offer    string       // name of the offer that is rented; "": the cheapest
	// Confirm asks whether an instance of the offer may be rented.
	Confirm func(o cluster.Offer, currency string) bool
	Wait    time.Duration // until the list must show a launched or ended instance
	Poll    time.Duration // between two lists
	Report  func(Result)  // is called for each rule, in order
}

// Result is the result of one rule.
type Result struct {
	Rule    string
	Problem string // "" if the program keeps the rule
}

// ErrNotConfirmed is returned if Confirm refuses; the rules until then were checked.
var ErrNotConfirmed = errors.New("no instance rented; remaining checks skipped")

// lifetime is that of the instance.
const lifetime = 30 * time.Minute

// The launches of a check.
const (
	rented cluster.LeaseID = iota + 1
	unknownOffer
	lowPrice
)

// checking is one check.
type checking struct {
	Config
	ctx      context.Context
	program  *burst.Program
	cluster  string
	failed   int
	ids      map[string]bool // every instance that an answer named
	launched bool            // a launch may have succeeded
	cleaning bool
	slowest  time.Duration
	call     string // the slowest one
}

// Run checks a program and returns how many rules it breaks. At the end of ctx it still ends what it started.
func Run(ctx context.Context, cfg Config) (failed int, err error) {
	var b [5]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	c := &checking{Config: cfg, ctx: ctx, cluster: "check-" + hex.EncodeToString(b[:]), ids: map[string]bool{}}
	c.Provider.ClusterID, c.Provider.Strict = c.cluster, true
	c.program = burst.New(c.Provider)
	defer func() {
		c.cleanUp(context.WithoutCancel(ctx))
		failed = c.failed
	}()
	c.validate()
	offer, currency, found := c.offers()
	c.rule("list works before the first launch", c.listIsEmpty())
	if !found {
		return 0, ctx.Err()
	}
	c.refusals(offer)
	if !c.Confirm(offer, currency) {
		return 0, ErrNotConfirmed
	}
	c.instance(offer)
	c.rule("every call answers in time", c.deadlines())
	return 0, ctx.Err()
}

// rule reports a rule; a nil error keeps it. After an interrupt only the last rule counts.
func (c *checking) rule(name string, err error) bool {
	if c.ctx.Err() != nil && !c.cleaning {
		return false
	}
	r := Result{Rule: name}
	if err != nil {
		c.failed++
		r.Problem = cluster.Sanitize(err.Error(), 1000)
	}
	c.Report(r)
	return err == nil
}

// timed measures a call.
func (c *checking) timed(call string, f func() error) error {
	begin := time.Now()
	err := f()
	if took := time.Since(begin); took > c.slowest {
		c.slowest, c.call = took, call
	}
	return err
}

func (c *checking) validate() {
	c.rule("validate reports no problems", c.timed(burst.CallValidate, func() error {
		problems, err := c.program.Validate(c.ctx)
		if err == nil && len(problems) > 0 {
			err = errors.New(strings.Join(problems, "; "))
		}
		return err
	}))
	for _, input := range []string{"garbage {", ""} {
		err := c.program.Probe(c.ctx, burst.CallLaunch, []byte(input))
		c.rule(fmt.Sprintf("launch with the input %q fails", input), refused(err, "invalid", burst.ErrInvalid))
	}
}

// refused returns nil for an error of one of the kinds with exit status 1.
func refused(err error, words string, kinds ...error) error {
	switch {
	case err == nil:
		return fmt.Errorf("expected exit status 1 with an error of the kind %s, but the call succeeded", words)
	case slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) }) && (errors.Is(err, burst.ErrRefused) || errors.Is(err, burst.ErrMismatch)):
		return nil
	}
	return fmt.Errorf("expected exit status 1 with an error of the kind %s, got: %w", words, err)
}

// offers returns the offer to rent.
func (c *checking) offers() (offer cluster.Offer, currency string, found bool) {
	var prices burst.Prices
	ok := c.rule("offers are complete and valid", c.timed(burst.CallOffers, func() (err error) {
		prices, err = c.program.Offers(c.ctx)
		if err == nil && len(prices.Offers) == 0 {
			err = errors.New("expected at least one offer, got none")
		}
		return err
	}))
	if !ok {
		return offer, "", false
	}
	var names []string
	for _, o := range prices.Offers {
		names = append(names, o.Name)
		if (c.Offer == "" || c.Offer == o.Name) && (!found || o.Price < offer.Price) {
			offer, found = o, true
		}
	}
	if !found {
		c.rule("the offer exists", fmt.Errorf("expected %s, got %s", c.Offer, strings.Join(names, ", ")))
	}
	return offer, prices.Currency, found
}

// list returns the instances of the check that have not ended.
func (c *checking) list(ctx context.Context) (live []cluster.Instance, err error) {
	err = c.timed(burst.CallList, func() error {
		live, err = c.program.List(ctx)
		return err
	})
	for _, x := range live {
		c.ids[x.ID] = true
	}
	return slices.DeleteFunc(live, func(x cluster.Instance) bool { return x.Terminated }), err
}

func (c *checking) listIsEmpty() error {
	live, err := c.list(c.ctx)
	if err == nil && len(live) > 0 {
		err = fmt.Errorf("expected no instance of the cluster %s, got %s", c.cluster, live[0].ID)
	}
	return err
}

// request returns a launch of one instance.
func (c *checking) request(launch cluster.LeaseID, offer cluster.Offer) *burst.LaunchRequest {
	lease := cluster.Lease{Launch: launch, Try: 1}
	return &burst.LaunchRequest{
		Launch: launch, Try: 1, ClientToken: lease.ClientToken(c.cluster), Nodes: 1, Offer: offer, MaxPrice: offer.Price + offer.Price/4,
		Lifetime: lifetime, Controllers: []string{"localhost:1"}, JoinToken: "join-token-of-a-check",
	}
}

func (c *checking) launch(l *burst.LaunchRequest) (list []cluster.Instance, err error) {
	err = c.timed(burst.CallLaunch, func() error {
		list, err = c.program.Launch(c.ctx, l)
		return err
	})
	for _, x := range list {
		c.ids[x.ID] = true
	}
	c.launched = c.launched || !errors.Is(err, burst.ErrRefused)
	return list, err
}

// refusals checks launches that must start nothing.
func (c *checking) refusals(offer cluster.Offer) {
	l := c.request(unknownOffer, offer)
	l.Offer.Name, l.Offer.Type = "no-such-offer", "no-such-type"
	_, err := c.launch(l)
	c.rule("a launch of an unknown offer is refused", refused(err, "not_found or invalid", burst.ErrNotFound, burst.ErrInvalid))
	l = c.request(lowPrice, offer)
	l.MaxPrice = 1
	_, err = c.launch(l)
	c.rule("a launch above the maximum price is refused", refused(err, "price", burst.ErrPrice))
	c.rule("refused launches start nothing", c.listIsEmpty())
}

// instance rents an instance and ends it.
func (c *checking) instance(offer cluster.Offer) {
	l := c.request(rented, offer)
	first, err := c.launch(l)
	if !c.rule("a launch starts the instance with its tags", err) {
		return
	}
	id := first[0].ID
	c.rule("the same launch again returns the same instance", c.same(l, id))
	other := c.request(rented, offer)
	other.Nodes = 2
	_, err = c.launch(other)
	c.rule("the same client token with other arguments is refused", refused(err, "mismatched", burst.ErrMismatch))
	c.rule("list shows exactly the instance, with its tags", c.await(func(live []cluster.Instance) error {
		if len(live) != 1 || live[0].ID != id || live[0].Launch != rented || live[0].Try != 1 {
			return fmt.Errorf("expected %s of launch %d, got %s", id, rented, describe(live))
		}
		return nil
	}))
	c.rule("an invented identity document is refused", refused(c.timed(burst.CallIdentify, func() error {
		return c.program.Identify(c.ctx, id, "invented")
	}), "not_proved or invalid", burst.ErrNotProved, burst.ErrInvalid))
	c.rule("console answers", c.timed(burst.CallConsole, func() error {
		_, err := c.program.Console(c.ctx, id)
		return err
	}))
	c.rule("terminate ends the instance", c.terminate(c.ctx, id))
	c.rule("terminate again is no error", c.terminate(c.ctx, id))
	c.rule("list shows that the instance has ended", c.await(func(live []cluster.Instance) error {
		if len(live) > 0 {
			return fmt.Errorf("expected %s to be terminated or absent, got %s", id, describe(live))
		}
		return nil
	}))
	c.rule("a launch with the token of an ended instance starts none", c.ended(l, id))
}

// same repeats a launch.
func (c *checking) same(l *burst.LaunchRequest, id string) error {
	again, err := c.launch(l)
	if err == nil && again[0].ID != id {
		err = fmt.Errorf("expected %s, got %s", id, again[0].ID)
	}
	return err
}

// ended repeats the launch of an instance that has ended: its answer may be the ended instance, or any error.
func (c *checking) ended(l *burst.LaunchRequest, id string) error {
	again, err := c.launch(l)
	if err == nil && again[0].ID != id {
		return fmt.Errorf("expected %s, got %s", id, again[0].ID)
	}
	return c.listIsEmpty()
}

func (c *checking) terminate(ctx context.Context, ids ...string) error {
	return c.timed(burst.CallTerminate, func() error {
		_, err := c.program.Terminate(ctx, ids)
		return err
	})
}

func describe(live []cluster.Instance) string {
	var texts []string
	for _, x := range live {
		texts = append(texts, fmt.Sprintf("%s of launch %d, try %d", x.ID, x.Launch, x.Try))
	}
	if len(texts) == 0 {
		return "no instance"
	}
	return strings.Join(texts, "; ")
}

// await lists until the instances are as they should be.
func (c *checking) await(wrong func(live []cluster.Instance) error) error {
	end := time.Now().Add(c.Wait)
	for {
		live, err := c.list(c.ctx)
		if err == nil {
			err = wrong(live)
		}
		if err == nil || c.ctx.Err() != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w, after %v", err, c.Wait)
		}
		c.pause(c.ctx)
	}
}

func (c *checking) pause(ctx context.Context) {
	t := time.NewTimer(c.Poll)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (c *checking) deadlines() error {
	if limit := c.Provider.Timeout / 2; c.slowest > limit {
		return fmt.Errorf("expected each call to take at most %v, half of the time limit; %s took %v", limit, c.call, c.slowest.Round(time.Millisecond))
	}
	return nil
}

// cleanUp ends all instances of the check, for as long as Wait.
func (c *checking) cleanUp(ctx context.Context) {
	c.cleaning = true
	end := time.Now().Add(c.Wait)
	var problem error
	for {
		live, err := c.list(ctx)
		switch {
		case err != nil:
			if problem = err; !c.launched {
				return // nothing was rented, and the list was reported
			}
			if len(c.ids) > 0 {
				problem = errors.Join(problem, c.terminate(ctx, slices.Sorted(maps.Keys(c.ids))...))
			}
		case len(live) == 0:
			c.rule("nothing is left running", c.unlisted(ctx))
			return
		default:
			var ids []string
			for _, x := range live {
				ids = append(ids, x.ID)
			}
			problem = errors.Join(fmt.Errorf("%s did not end", describe(live)), c.terminate(ctx, ids...))
		}
		if time.Now().After(end) {
			c.rule("nothing is left running", fmt.Errorf("%w; terminate the instances with the tag of the cluster %s in the cloud", problem, c.cluster))
			return
		}
		c.pause(ctx)
	}
}

// unlisted ends the instances that answers named. The list may never have shown them.
func (c *checking) unlisted(ctx context.Context) error {
	if len(c.ids) == 0 {
		return nil
	}
	return c.terminate(ctx, slices.Sorted(maps.Keys(c.ids))...)
}
