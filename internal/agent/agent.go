// Package agent is the daemon of a node: it keeps a session with the leading
// controller, makes the tasks on the node match those that are wanted there,
// and tells what became of them.
//
// It decides, from what a task's process and devices did, why the task ended,
// and when the node itself is not fit for work. Which task does what next is
// package reconcile's to decide; where jobs run, how long, and what the end of
// a task means for its job, the controllers'. No task ever ends because the
// daemon or the controllers are away.
//
// One goroutine, the loop, owns all state; everything that may block (starting,
// signalling, clearing away, the network) runs beside it and posts what came of
// it. What the loop decides is written to taskdb before it is acted on.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/taskdb"
	"github.com/greylag/greylag/pkg/cluster"
)

// Config is what a node's agent is told. Name, StateDir and Log must be set.
type Config struct {
	Name     string // of the node, as in its certificate
	StateDir string // for records and sockets; best on a tmpfs

	// Report is how often a full report is sent although nothing changed, and
	// Health how often the runtime and the GPUs are looked at.
	Report, Health time.Duration
	// Meter is how often it is looked at how busy the GPUs of tasks are.
	Meter time.Duration

	CPUs     int           // 0: those of the host
	Memory   cluster.Bytes // 0: that of the host
	Features []string
	Region   string

	Prolog, Epilog string // programs run as root before and after a task; "" for none
	HookTimeout    time.Duration
	// LaunchTimeout bounds what comes before a task's start: its script, its
	// image, the prolog. A task that takes longer is given up as the node's fault.
	LaunchTimeout time.Duration

	Images tasks.Keep // of images that no task needs

	RuntimeName string // for people: "containerd crun"
	// Isolated says that the runtime gives each task a view of the file system
	// of its own; without it a task sees the host's as it is.
	Isolated bool
	// Device names a GPU to the runtime; nil where the runtime has no devices.
	Device func(index int32) string
	// Sockets serves the commands inside tasks; nil for none. Programs are those commands, for
	// tasks in images; those that are absent are left out.
	Sockets  *auth.JobSockets
	Programs []string
	// Describe tells the runtime which devices there are, before any task starts.
	Describe func(gpu.Inventory) error

	// Controllers returns the addresses that the node dials, and File is where they are set: for
	// the log. nil and "" name none.
	Controllers func() []string
	File        string

	Log *slog.Logger
}

// Agent is one node's daemon. Use New, then Run once.
type Agent struct {
	cfg     Config
	session Session
	runtime tasks.Runtime
	gpus    gpu.Provider
	db      *taskdb.DB
	log     *slog.Logger

	calls    chan func()   // carried out by the loop, in order
	done     chan struct{} // closed when the loop takes no more calls
	reports  chan struct{} // something changed that the controllers should hear
	anew     chan struct{} // the node changed: register again
	slots    chan struct{} // bounds tasks being started or cleared away at once
	blobs    *blobCache
	accounts *accounts
	workers  sync.WaitGroup
	reading  context.Context // ends with Run: readers of outputs end with it

	state // the loop's alone
}

// state is owned by the loop.
type state struct {
	identity  taskdb.Identity
	host      host
	inventory gpu.Inventory
	bad       map[string]string // GPU by UUID: why it may not be used
	badSince  uint64            // counts changes of bad
	counting  uint64            // names this process, whose counters begin at 0
	faults    map[string]string // by source: why the node is not fit for work

	tasks map[reconcile.ID]*task
	set   *reconcile.Set // the newest admitted since the daemon started
	specs wantedTasks    // of set
	floor uint64         // no older set is admitted
	acted uint64         // version of the newest set whose every task is recorded
	cores cores

	dirty   map[reconcile.ID]bool
	forget  []reconcile.ID
	backlog []reconcile.Action // decided, and to be carried out once recorded
	foreign bool               // records are of another cluster; clear them first
	listed  bool               // the runtime has said what it holds
	refused time.Time          // since when only old sets have come; zero: not
	// unadmitted is the newest set of this session if it was not admitted.
	unadmitted *greylagv1.WantedResponse
	logs       map[string]context.CancelFunc
	asked      []*greylagv1.LogRequest
	served     []string // log requests already answered, oldest first
	wake       time.Time
}

// callBacklog bounds posted calls; whoever posts more waits.
const callBacklog = 256

// New opens the node's records. The session is used from Run on.
func New(cfg Config, session Session, rt tasks.Runtime, gpus gpu.Provider) (*Agent, error) {
	if cfg.Report <= 0 {
		cfg.Report = 10 * time.Second
	}
	if cfg.Health <= 0 {
		cfg.Health = 30 * time.Second
	}
	if cfg.Meter <= 0 {
		cfg.Meter = 5 * time.Second
	}
	if cfg.HookTimeout <= 0 {
		cfg.HookTimeout = 5 * time.Minute
	}
	if cfg.LaunchTimeout <= 0 {
		cfg.LaunchTimeout = 30 * time.Minute
	}
	if cfg.Name == "" || cfg.StateDir == "" || cfg.Log == nil {
		return nil, errors.New("agent: name, state folder and log must be set")
	}
	a := &Agent{
		cfg: cfg, session: session, runtime: rt, gpus: gpus, log: cfg.Log,
		calls: make(chan func(), callBacklog), done: make(chan struct{}),
		reports: make(chan struct{}, 1), anew: make(chan struct{}, 1),
		slots: make(chan struct{}, max(8, 2*runtime.GOMAXPROCS(0))),
		blobs: newBlobCache(), accounts: newAccounts(),
		state: state{
			counting: uint64(time.Now().UnixNano()), bad: map[string]string{}, faults: map[string]string{}, tasks: map[reconcile.ID]*task{},
			dirty: map[reconcile.ID]bool{}, logs: map[string]context.CancelFunc{},
		},
	}
	if err := a.openRecords(); err != nil {
		return nil, err
	}
	return a, nil
}

// Run serves until the context ends, then stops the daemon's own work and
// leaves tasks running. It returns nil then, and an error only where the node
// cannot be served at all.
func (a *Agent) Run(ctx context.Context) error {
	defer a.db.Close()
	host, err := discover(a.cfg)
	if err != nil {
		return fmt.Errorf("look at this host: %w", err)
	}
	a.host = host
	a.cores = newCores(host)
	a.lookAtGPUs(ctx)
	a.lookAtRuntime(ctx)
	if err := a.load(ctx); err != nil {
		return err
	}
	background, stop := context.WithCancel(ctx)
	defer stop()
	a.reading = background
	for _, part := range []func(context.Context){a.runSession, a.watchGPUs, a.watchRuntime, a.watchInventory, a.watchUse, a.collectImages} {
		a.workers.Go(func() { part(background) })
	}
	a.loop(ctx)
	stop()
	a.finish()
	a.stopSockets()
	return nil
}

// finish waits for what runs beside the loop. What they post is still taken
// and recorded, so that nothing a start did is unknown to the next daemon.
func (a *Agent) finish() {
	ended := make(chan struct{})
	go func() {
		a.workers.Wait()
		close(ended)
	}()
	for {
		select {
		case call := <-a.calls:
			call()
			a.flush()
		case <-ended:
			close(a.done)
			for len(a.calls) > 0 {
				(<-a.calls)()
			}
			a.flush()
			return
		}
	}
}

// post hands a call to the loop.
func (a *Agent) post(call func()) {
	select {
	case a.calls <- call:
	case <-a.done:
	}
}

// ask has the loop carry out call, and waits for it.
func (a *Agent) ask(ctx context.Context, call func()) error {
	done := make(chan struct{})
	select {
	case a.calls <- func() { call(); close(done) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nudge makes a channel of one hold one.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
