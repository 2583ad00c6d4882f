package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// Log is the replicated log; package raftlog implements it.
type Log interface {
	ProposeMany(ctx context.Context, commands [][]byte) (results []any, index uint64, err error)
	ReadIndex(ctx context.Context) (uint64, error)
	Leadership() <-chan bool
	// AllCompatible reports whether every member answers, and makes digests as this one does: runs
	// this version, or one that decides alike. It waits for the answers, for two seconds at
	// most.
	AllCompatible(ctx context.Context) bool
}

// Config configures a Controller. Replica and Log are required.
type Config struct {
	Replica *Replica
	Log     Log
	Logger  *slog.Logger // default slog.Default
	// ClusterID and Policy initialize a cluster without a name.
	ClusterID string
	Policy    cluster.Policy
	// MemberID and Host are recorded in the state when this controller leads, unless Host is empty.
	MemberID, Host string
	// Clock is the clock of the log's timestamps (time.Now).
	Clock func() time.Time
	// TraceID returns the trace of a job for the log, "" for a job that is not sampled; nil: jobs are not
	// traced.
	TraceID func(cluster.JobID) string
	// Fence proves that a node is off or cut off, so that no task runs there; nil: only the node or an operator can. It
	// ends when ctx does. It may run again for the same node.
	Fence func(ctx context.Context, node string) error
	// Cloud rents nodes; nil: none are leased. LaunchToken and Addresses are required with it.
	Cloud burst.Provider
	// LaunchToken returns the join token of a launch's try, always the same, and its hash.
	LaunchToken func(l *cluster.Lease, try uint32) (string, cluster.Digest, error)
	// Addresses returns the addresses of the controllers that nodes connect to.
	Addresses func() []string
	// Observer receives measurements; nil: none does.
	Observer Observer
}

// Controller runs the leader's loops while this controller leads. Its methods are safe for
// concurrent use.
type Controller struct {
	cfg     Config
	replica *Replica
	raft    Log
	log     *slog.Logger
	term    atomic.Pointer[term]
}

// New returns a controller that does nothing until Run.
func New(cfg Config) *Controller {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Observer == nil {
		cfg.Observer = unobserved{}
	}
	return &Controller{cfg: cfg, replica: cfg.Replica, raft: cfg.Log, log: cfg.Logger}
}

// term is one period of leadership.
type term struct {
	*Controller
	ctx        context.Context // ends with the term
	heartbeats heartbeats
	meter      meter
	loops      sync.WaitGroup
}

// Run follows leadership until ctx ends or the log stops. It returns when every loop has ended.
func (c *Controller) Run(ctx context.Context) {
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case leads, open := <-c.raft.Leadership():
			stop()
			stop = func() {}
			if !open {
				return
			}
			if leads {
				stop = c.lead(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// lead starts the loops; the function it returns stops them and waits.
func (c *Controller) lead(ctx context.Context) func() {
	ctx, cancel := context.WithCancel(ctx)
	t := &term{Controller: c, ctx: ctx}
	t.heartbeats.open(time.Now())
	t.meter.open(time.Now())
	c.term.Store(t)
	t.loops.Go(t.name)
	t.loops.Go(t.passes)
	t.loops.Go(t.ticks)
	t.loops.Go(t.renew)
	t.loops.Go(t.health)
	t.loops.Go(t.fences)
	t.loops.Go(t.leases)
	t.loops.Go(t.meterJobs)
	t.loops.Go(t.logJobs)
	c.log.Info("leading")
	return func() {
		c.term.Store(nil)
		cancel()
		t.loops.Wait()
		c.log.Info("no longer leading")
	}
}

// Leading reports whether the leader's loops run; the context ends when they stop.
func (c *Controller) Leading() (context.Context, bool) {
	if t := c.term.Load(); t != nil {
		return t.ctx, true
	}
	return nil, false
}

// Propose proposes one command and returns the result of the state and the log index of its entry.
// Errors wrap those of raftlog; a *command.Refusal is a result.
func (c *Controller) Propose(ctx context.Context, cmd command.Command) (command.Result, uint64, error) {
	results, index, err := c.raft.ProposeMany(ctx, [][]byte{command.Encode(cmd)})
	if err != nil {
		return nil, index, err
	}
	result, ok := results[0].(command.Result)
	if !ok {
		return nil, index, fmt.Errorf("unexpected result %T from the state", results[0])
	}
	return result, index, nil
}

// ReadView returns a view that contains every entry committed before the call. It works only on the
// leader; errors wrap those of raftlog.
func (c *Controller) ReadView(ctx context.Context) (*state.View, error) {
	if _, err := c.raft.ReadIndex(ctx); err != nil {
		return nil, err
	}
	return c.replica.View(), nil
}

// RecordHeartbeat records a heartbeat of a node under an epoch.
func (c *Controller) RecordHeartbeat(node string, epoch uint64) {
	if t := c.term.Load(); t != nil {
		t.heartbeats.record(node, epoch, time.Now())
	}
}

// Ran records for how long a node has had a task, counted since counting began. over means that the
// task has ended, perhaps before that.
func (c *Controller) Ran(node string, counting uint64, job cluster.JobID, attempt cluster.Attempt, ran time.Duration, over bool) {
	if t := c.term.Load(); t != nil {
		t.meter.record(run{job, attempt}, node, count{counting, ran, over, time.Now()})
	}
}

// name gives a new cluster its name and first policy.
func (t *term) name() {
	for t.replica.View().ClusterID() == "" {
		_, _, err := t.Propose(t.ctx, &command.Init{ClusterID: t.cfg.ClusterID, Policy: t.cfg.Policy})
		if err != nil && !t.pause(time.Second, "cannot name the cluster, trying again", err) {
			return
		}
	}
	t.record()
}

// record records the host of this controller: the first member of a cluster was never added, and
// the name in a certificate can change.
func (t *term) record() {
	for t.cfg.Host != "" {
		if m, _ := t.replica.View().Hosts().Controller(t.cfg.MemberID); m.Name == t.cfg.Host || m.Retired != 0 {
			return
		}
		result, _, err := t.Propose(t.ctx, &command.RecordMember{ID: t.cfg.MemberID, Name: t.cfg.Host})
		if refusal, refused := result.(*command.Refusal); refused {
			t.log.Error("cannot record this controller", "err", refusal)
			return
		}
		if err != nil && !t.pause(time.Second, "cannot record this controller, trying again", err) {
			return
		}
	}
}

// pause waits after a failure of a loop; it returns false if the term has ended.
func (t *term) pause(d time.Duration, what string, err error) bool {
	if t.ctx.Err() != nil {
		return false
	}
	t.log.Warn(what, "err", err)
	select {
	case <-time.After(d):
		return true
	case <-t.ctx.Done():
		return false
	}
}
