package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/reconcile/instances"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// The times of the lease loop.
const (
	listEvery    = time.Minute      // the cloud is listed at least this often
	listUrgently = 2 * time.Second  // while an instance is to start or to end
	offersEvery  = 10 * time.Minute // between two lists of prices
	offersAgain  = time.Minute      // after a failure
	launchAgain  = 10 * time.Second // after a request without an answer
	mostLaunches = 8                // requests at a time
	mostUpdates  = 200              // of one command
	mostConsoles = 4                // read in one round
	consoleTime  = 10 * time.Second // for all of them
	urgentFor    = 5 * time.Minute  // for which an instance is expected to end soon
)

// leaseLoop makes the instances in the cloud agree with the leases. Everything that it learns is a command; only what
// it waits for is in memory, so that a new leader goes on from the state.
type leaseLoop struct {
	*term
	cloud    burst.Provider
	requests requests
	began    time.Time
	absent   map[string]time.Duration // see instances.Sets
	listed   time.Time
	priced   time.Time // when the offers are due
}

// requests are the launches whose request is in progress, or is repeated later.
type requests struct {
	mu    sync.Mutex
	until map[cluster.LeaseID]time.Time // zero: in progress
	all   sync.WaitGroup
}

// begin marks a request as in progress; false if it is, or too many are.
func (r *requests) begin(launch cluster.LeaseID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	running := 0
	for _, until := range r.until {
		if until.IsZero() {
			running++
		}
	}
	if _, asks := r.until[launch]; asks || running >= mostLaunches {
		return false
	}
	r.until[launch] = time.Time{}
	return true
}

// end marks a request as done; it is repeated after pause, if that is not 0.
func (r *requests) end(launch cluster.LeaseID, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.until, launch); pause > 0 {
		r.until[launch] = time.Now().Add(pause)
	}
}

// set returns those that are not to be made now.
func (r *requests) set() map[cluster.LeaseID]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.until, func(_ cluster.LeaseID, until time.Time) bool { return !until.IsZero() && !time.Now().Before(until) })
	set := make(map[cluster.LeaseID]struct{}, len(r.until))
	for launch := range r.until {
		set[launch] = struct{}{}
	}
	return set
}

// leases runs the lease loop until the term ends.
func (t *term) leases() {
	if t.cfg.Cloud == nil {
		if t.replica.View().Policy().Burst.On {
			t.log.Warn("cloud burst is enabled in the policy, but gctld.toml has no burst.program: no nodes are leased")
		}
		return
	}
	l := &leaseLoop{term: t, cloud: t.cfg.Cloud, began: time.Now(), absent: map[string]time.Duration{}}
	l.requests.until = map[cluster.LeaseID]time.Time{}
	defer l.requests.all.Wait()
	ticker := time.NewTicker(checkSpacing)
	defer ticker.Stop()
	for {
		if now := time.Now(); !now.Before(l.priced) {
			l.prices(now)
		}
		if v := t.replica.View(); l.due(v, time.Now()) {
			l.round()
		}
		select {
		case <-ticker.C:
		case <-t.ctx.Done():
			return
		}
	}
}

// due reports whether the cloud is to be listed now.
func (l *leaseLoop) due(v *state.View, now time.Time) bool {
	if now.Sub(l.listed) >= listEvery {
		return true
	}
	if now.Sub(l.listed) < listUrgently {
		return false
	}
	waits := l.requests.set()
	for x := range v.Leases() {
		_, asks := waits[x.Launch]
		switch {
		case x.State == cluster.LeasePlanned, x.State == cluster.LeaseRequested:
			if !asks {
				return true
			}
		case x.State == cluster.LeaseTerminating && now.Sub(x.Since.Time()) < urgentFor:
			return true
		case x.State == cluster.LeaseDraining && x.Reclaim > 0 && !now.Before(x.Reclaim.Time()): // the cloud ends it now
			return true
		}
	}
	return false
}

// prices updates the offers.
func (l *leaseLoop) prices(now time.Time) {
	l.priced = now.Add(offersEvery)
	prices, err := l.cloud.Offers(l.ctx)
	l.called(burst.CallOffers, err)
	if err != nil {
		l.priced = time.Now().Add(offersAgain) // counted from its end: a call that hangs leaves time for others
		l.failed("cannot get the offers of the cloud", err)
		return
	}
	if currency := l.replica.View().Policy().Burst.Currency; prices.Currency != currency {
		l.log.Error("the currency of the provider differs from burst.currency of the policy: no nodes are leased", "provider", prices.Currency, "policy", currency)
	}
	if _, _, err := l.Propose(l.ctx, &command.SetOffers{Offers: prices.Offers, Currency: prices.Currency}); err != nil {
		l.priced = now.Add(offersAgain)
		l.failed("cannot record the offers of the cloud", err)
	}
}

// called counts a call of the provider program, unless the term has ended.
func (l *leaseLoop) called(call string, err error) {
	result := CallFailed
	switch {
	case l.ctx.Err() != nil:
		return
	case err == nil:
		result = CallOK
	case errors.Is(err, burst.ErrRefused):
		result = CallRefused
	}
	l.cfg.Observer.Called(call, result)
}

// failed logs an error of the cloud, unless the term has ended.
func (l *leaseLoop) failed(what string, err error) {
	if l.ctx.Err() == nil {
		l.log.Warn(what, "err", err)
	}
}

// round lists the cloud, then compares, then acts.
func (l *leaseLoop) round() {
	listed, err := l.cloud.List(l.ctx)
	l.called(burst.CallList, err)
	l.listed = time.Now()
	if err != nil {
		l.failed("cannot list instances", err)
		l.terminate(endingInstances(l.replica.View()))
		return
	}
	waits := l.requests.set() // before the view: a request that ends now has recorded its instances
	v, err := l.ReadView(l.ctx)
	if err != nil {
		return
	}
	sets := instances.Sets{
		Now: cluster.InstantOf(l.cfg.Clock()), Elapsed: time.Since(l.began), Restored: v.History().Restored, Leases: slices.Collect(v.Leases()), Instances: listed,
		Requests: waits, Absent: l.absent,
	}
	sets.Leases = slices.DeleteFunc(sets.Leases, func(x *cluster.Lease) bool { return !x.Live() })
	actions := instances.Compare(&sets)
	if actions.Orphans > 0 {
		l.log.Warn("instances without a lease", "count", actions.Orphans)
	}
	l.cfg.Observer.Orphans(actions.Orphans)
	l.record(actions.Updates)
	l.readConsoles(actions.Console)
	l.terminate(actions.Terminate)
	for _, leases := range actions.Launches {
		l.start(leases[0])
	}
}

// endingInstances returns the instances that are to end, whether or not the cloud still has them.
func endingInstances(v *state.View) (ids []string) {
	for _, x := range v.LeaseWork() {
		if x.State == cluster.LeaseTerminating && x.Instance != "" {
			ids = append(ids, x.Instance)
		}
	}
	return ids
}

// terminate ends instances.
func (l *leaseLoop) terminate(ids []string) {
	if len(ids) == 0 {
		return
	}
	l.log.Info("terminating instances", "instances", ids)
	_, err := l.cloud.Terminate(l.ctx, ids)
	if l.called(burst.CallTerminate, err); err != nil {
		l.failed("cannot terminate instances", err)
	}
}

// readConsoles records the console output of some instances that end without having joined. It takes a bounded time, so
// that it does not keep others from ending.
func (l *leaseLoop) readConsoles(leases []*cluster.Lease) {
	ctx, stop := context.WithTimeout(l.ctx, consoleTime)
	defer stop()
	for _, x := range leases[:min(len(leases), mostConsoles)] {
		if text, err := l.cloud.Console(ctx, x.Instance); err == nil && text != "" {
			l.record([]command.LeaseUpdate{{Lease: x.ID, Event: command.LeaseConsole, Console: text}})
		}
	}
}

// record proposes updates, in commands of a bounded size.
func (l *leaseLoop) record(updates []command.LeaseUpdate) bool {
	for part := range slices.Chunk(updates, mostUpdates) {
		if _, _, err := l.Propose(l.ctx, &command.UpdateLeases{Updates: part}); err != nil {
			l.failed("cannot record lease events", err)
			return false
		}
	}
	return true
}

// start makes the request of a launch, unless one is in progress.
func (l *leaseLoop) start(x *cluster.Lease) {
	if !l.requests.begin(x.Launch) {
		return
	}
	l.requests.all.Go(func() { l.requests.end(x.Launch, l.request(x)) })
}

// request records that the request of a launch is made, makes it, and records its outcome. It returns after which pause
// the request is repeated; 0: it has an outcome.
func (l *leaseLoop) request(x *cluster.Lease) time.Duration {
	try := x.Try
	if x.State == cluster.LeasePlanned {
		try++
	}
	token, hash, err := l.cfg.LaunchToken(x, try)
	if err != nil {
		l.failed("cannot create the join token of a launch", err)
		return launchAgain
	}
	if x.State == cluster.LeasePlanned && !l.record([]command.LeaseUpdate{{Lease: x.Launch, Event: command.LaunchRequested, Try: try, Token: hash}}) {
		return launchAgain
	}
	v, err := l.ReadView(l.ctx)
	if err != nil {
		return launchAgain
	}
	now, known := v.Lease(x.ID)
	if !known || now.State != cluster.LeaseRequested {
		return 0
	}
	l.log.Info("launching instances", "launch", now.Launch, "try", now.Try, "nodes", now.Nodes, "offer", now.Offer.Name, "market", now.Offer.Market.String())
	started, err := l.cloud.Launch(l.ctx, &burst.LaunchRequest{
		Launch: now.Launch, Try: now.Try, ClientToken: now.ClientToken(v.ClusterID()), Nodes: int(now.Nodes), Offer: now.Offer,
		MaxPrice: now.MaxPrice, Lifetime: now.Lifetime, Controllers: l.cfg.Addresses(), JoinToken: token,
	})
	if l.ctx.Err() != nil {
		return 0
	}
	l.called(burst.CallLaunch, err)
	update := command.LeaseUpdate{Lease: now.Launch, Try: now.Try}
	switch {
	case err == nil:
		l.record(instances.Started(slices.Collect(v.Leases()), now, started))
		return 0
	case errors.Is(err, burst.ErrRefused):
		update.Event, update.Why = command.LaunchFailed, err.Error()
		update.Capacity = errors.Is(err, burst.ErrCapacity) || errors.Is(err, burst.ErrPrice)
	default:
		update.Event, update.Why = command.LaunchDelayed, err.Error()
	}
	l.log.Warn("launch failed", "launch", now.Launch, "try", now.Try, "err", err)
	if !l.record([]command.LeaseUpdate{update}) || update.Event == command.LaunchDelayed {
		return launchAgain
	}
	return 0
}
