// Package agent is the daemon of a node. It keeps a session with the leading controller, makes the
// tasks on the node match the desired set, and reports their state.
//
// It decides why a task ended, from its process and devices, and when the node is unfit for work.
// Package reconcile decides the next step of each task. The controllers decide where and how long
// jobs run, and what the end of a task means for its job. No task ends because the daemon or the
// controllers are away.
//
// One goroutine, the loop, owns all state. Everything that may block (starts, signals, removal, the
// network) runs in other goroutines, which post their results. The loop writes each decision to
// taskdb before it acts on it.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/health"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/taskdb"
	"github.com/greylag/greylag/pkg/cluster"
)

// Config is the configuration of a node's agent. Name, StateDir and Log must be set.
type Config struct {
	Name     string // name of the node, as in its certificate
	StateDir string // records and sockets; should be on a tmpfs

	// Report is the interval between full reports without changes. Health is the interval between
	// checks of the runtime and the GPUs.
	Report, Health time.Duration
	// Meter is the interval between samples of GPU use.
	Meter time.Duration

	CPUs     int           // 0: the CPUs of the host
	Memory   cluster.Bytes // 0: the memory of the host
	Features []string
	Region   string
	Gres     []cluster.Gres // generic resources, sorted by name
	// ScratchDir is the parent of the scratch directories; "": the node offers no scratch space.
	// ScratchReserve is the part of its file system that is withheld from jobs.
	ScratchDir     string
	ScratchReserve cluster.Bytes

	// Reboot is the program with its arguments that reboots the node; nil: systemctl reboot.
	Reboot         []string
	Prolog, Epilog string // programs run as root before and after a task; "": none
	HookTimeout    time.Duration
	// LaunchTimeout limits the time before the start of a task: script, image, prolog. A task that
	// exceeds it ends as a node fault.
	LaunchTimeout time.Duration

	// SelfFenceAfter is how long no controller may answer before the node kills all its tasks; 0: it never
	// does.
	SelfFenceAfter time.Duration
	// Lease is set on a leased node.
	Lease *Lease
	// UnkillableAfter is how long the processes of a task may outlive SIGKILL before the node takes no new
	// work and the job ends without them; 0: 55 s.
	UnkillableAfter time.Duration

	// GPUMemory is the memory of a GPU that may be in use after a job without a process, such as that of a
	// driver's service; 0: any.
	GPUMemory cluster.Bytes

	Images tasks.Keep // of unused images

	// CheckpointProgram is the program that works in files as the user, such as to verify checkpoints and to copy files: see
	// checkpoint.PrepareIn and staging.Run.
	CheckpointProgram string
	// CheckpointGroup is the path of the control group in which that program and MPS daemons get groups of their own;
	// "": they run in that of the daemon.
	CheckpointGroup string

	Checks Checks

	RuntimeName string // for display: "containerd crun"
	// Isolated reports whether the runtime gives each task its own view of the file system.
	// Otherwise tasks see the host's.
	Isolated bool
	// Device returns the runtime's name of a GPU; nil if the runtime has no devices.
	Device func(index int32) string
	// Sockets serves commands inside tasks; nil: none. Programs are the paths of these commands,
	// mounted into tasks with images; missing ones are left out.
	Sockets  *auth.JobSockets
	Programs []string
	// MPSDir is the parent of the directories of MPS daemons, and MPSControl the program that controls them.
	MPSDir, MPSControl string
	// Describe passes the devices to the runtime before any task starts.
	Describe func(gpu.Inventory) error

	// Controllers returns the addresses that the node dials, and File the file that sets them, for
	// the log. nil and "" mean none.
	Controllers func() []string
	File        string

	Log *slog.Logger
	// Observer receives measurements; nil: none does.
	Observer Observer
}

// Agent is the daemon of one node. Call New, then Run once.
type Agent struct {
	cfg     Config
	session Session
	runtime tasks.Runtime
	gpus    gpu.Provider
	mps     mpsDaemons
	db      *taskdb.DB
	log     *slog.Logger

	calls               chan func()   // executed by the loop in order
	done                chan struct{} // closed when the loop executes no more calls
	reports             chan struct{} // a change that the controllers must learn
	reregister          chan struct{} // the node changed: register again
	idle                chan struct{} // the last task has left the node
	validate            chan struct{} // the same, or a validation is required
	preparing           chan struct{} // limits children that prepare checkpoints
	copyingIn           chan struct{} // limits children that copy input files
	copyingOut          chan struct{} // limits children that copy output files
	slots               chan struct{} // limits concurrent starts and removals
	staleScratchRenamed chan struct{} // closed once stale scratch directories have been renamed
	blobs               *blobCache
	accounts            *accounts
	workers             sync.WaitGroup
	reading             context.Context // ends with Run, and ends readers of outputs

	began        time.Time    // when this process began
	reachedAt    atomic.Int64 // when the last call was sent that a controller answered, in ns since began
	reportedAt   atomic.Int64 // when the last report was accepted, in ns since 1970; 0: none
	reportErrors atomic.Uint64

	programTimeouts atomic.Uint64 // runs of the health program that were killed

	state // owned by the loop
}

// state is owned by the loop.
type state struct {
	identity  taskdb.Identity
	cluster   string // display name; "" before the first session
	host      host
	inventory gpu.Inventory
	// divided reports that GPUs were divided into MIG instances since the last inventory, and undividable is why
	// that failed last.
	divided     bool
	undividable string
	health      *health.GPUs
	badSince    uint64            // number of changes of the GPUs' health
	counting    uint64            // identifies this process, whose counters begin at 0
	faults      map[string]string // by source: why the node is unfit for work
	// conditions are problems of the node, except those of its GPUs, by cause. shown are all that were
	// reported last, and unchecked are the checks that have no result yet.
	conditions map[string]cluster.Condition
	shown      []cluster.Condition
	servedBoot bool // an earlier daemon has served this boot
	unchecked  map[string]bool
	repairing  map[string]cluster.Condition // by cause: those that drain the node until a repair
	repaired   map[string]cluster.Condition // by cause: those of them that have ended, until the validation has a result
	resetting  map[string]bool              // GPUs by UUID that are out of service until a reset
	untested   map[string]string            // GPUs by UUID that were reset, until the validation has succeeded: their faults
	hookFailed map[string]time.Time         // when a prolog or epilog failed last, by source
	users      map[string]health.Use        // GPU by UUID: its use after its job
	ports      []string                     // InfiniBand ports that were active
	// reboot is the reboot that is to begin. rebooting: its program was started. rebootFailed: it failed.
	reboot       rebootOrder
	rebooting    bool
	rebootFailed bool
	// reclaim is the first deadline of a notice that the cloud takes the node back; 0 without one. leaseEnded is why the
	// controllers refused the last registration because the lease has ended; else "".
	reclaim    cluster.Instant
	leaseEnded string
	connected  bool                             // a session is open
	loads      map[string]gpu.Load              // by UUID; those of the last sample
	xids       map[xid]uint64                   // events since the start
	lastXID    map[string]int                   // by UUID
	ends       [cluster.MaxTaskCause + 1]uint64 // tasks that ended since the start, by cause

	tasks map[reconcile.ID]*task
	set   *reconcile.Set // the newest set admitted since the daemon started
	specs wantedTasks    // of set
	floor uint64         // no older set is admitted
	acted uint64         // version of the newest set whose tasks are all recorded
	cores cores

	dirty   map[reconcile.ID]bool
	forget  []reconcile.ID
	backlog []reconcile.Action // decided; runs once recorded
	foreign bool               // the records belong to another cluster and must be cleared first
	listed  bool               // the runtime has listed its tasks
	scratch int64              // MiB of scratch space that the node offers; 0: none
	refused time.Time          // since when only old sets arrived; zero: they did not
	// leftScratch are the paths of scratch directories to remove, with the error of the last try; nil: none yet.
	leftScratch     map[string]error
	deletingScratch bool // leftScratch is being removed
	// unadmitted is the newest set of this session if it was not admitted.
	unadmitted *greylagv1.WatchTasksResponse
	logs       map[string]context.CancelFunc
	asked      []*greylagv1.LogRequest
	served     []string // log requests already answered, oldest first
	wake       time.Time
}

// callBacklog limits the number of posted calls; further posts block.
const callBacklog = 256

// New opens the records of the node. Run uses the session.
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
	if cfg.UnkillableAfter <= 0 {
		cfg.UnkillableAfter = unkillableAfter
	}
	if len(cfg.Reboot) == 0 {
		cfg.Reboot = []string{"systemctl", "reboot"}
	}
	if cfg.Lease != nil && len(cfg.Lease.PowerOff) == 0 {
		cfg.Lease.PowerOff = []string{"systemctl", "poweroff"}
	}
	if cfg.Checks.Period <= 0 {
		cfg.Checks.Period = 5 * time.Minute
	}
	if cfg.Checks.Timeout <= 0 {
		cfg.Checks.Timeout = time.Minute
	}
	if cfg.Checks.ValidateTimeout <= 0 {
		cfg.Checks.ValidateTimeout = 10 * time.Minute
	}
	if cfg.Name == "" || cfg.StateDir == "" || cfg.Log == nil {
		return nil, errors.New("agent: name, state directory and log must be set")
	}
	if cfg.Observer == nil {
		cfg.Observer = unobserved{}
	}
	a := &Agent{
		began: time.Now(), validate: make(chan struct{}, 1),
		cfg: cfg, session: session, runtime: rt, gpus: gpus, log: cfg.Log,
		calls: make(chan func(), callBacklog), done: make(chan struct{}),
		reports: make(chan struct{}, 1), reregister: make(chan struct{}, 1), idle: make(chan struct{}, 1),
		preparing:           make(chan struct{}, maxPreparing),
		copyingIn:           make(chan struct{}, maxCopying),
		copyingOut:          make(chan struct{}, maxCopying),
		slots:               make(chan struct{}, max(8, 2*runtime.GOMAXPROCS(0))),
		staleScratchRenamed: make(chan struct{}),
		blobs:               newBlobCache(), accounts: newAccounts(),
		mps: mpsDaemons{dir: cfg.MPSDir, program: cfg.MPSControl, group: cfg.CheckpointGroup, private: cfg.Isolated},
		state: state{
			counting: uint64(time.Now().UnixNano()), health: health.NewGPUs(), conditions: map[string]cluster.Condition{}, unchecked: map[string]bool{}, repaired: map[string]cluster.Condition{}, resetting: map[string]bool{}, untested: map[string]string{}, hookFailed: map[string]time.Time{}, users: map[string]health.Use{}, faults: map[string]string{}, loads: map[string]gpu.Load{}, xids: map[xid]uint64{}, lastXID: map[string]int{}, tasks: map[reconcile.ID]*task{},
			dirty: map[reconcile.ID]bool{}, logs: map[string]context.CancelFunc{}, leftScratch: map[string]error{},
		},
	}
	if err := a.openRecords(); err != nil {
		return nil, err
	}
	a.loadHealth()
	a.loadReclaim()
	return a, nil
}

// Run serves until ctx ends, then stops the daemon and leaves tasks running. It returns nil then,
// and an error only if the node cannot be served at all.
func (a *Agent) Run(ctx context.Context) error {
	defer a.db.Close()
	host, err := discover(a.cfg)
	if err != nil {
		return fmt.Errorf("detect hardware: %w", err)
	}
	a.host = host
	a.cores = newCores(host)
	a.takeInventory(ctx)
	a.applyScratch(a.checkScratch())
	a.checkRuntime(ctx)
	a.applyBlock(a.blockMetadata(ctx))
	if err := a.load(ctx); err != nil {
		return err
	}
	a.divideAtStart(ctx)
	background, stop := context.WithCancel(ctx)
	defer stop()
	a.reading = background
	for _, part := range []func(context.Context){
		a.runSession, a.watchGPUs, a.watchRuntime, a.watchInventory, a.watchUse, a.watchActivity, a.watchOutput, a.collectImages,
		a.refreshHealth, a.watchProgram, a.watchPorts, a.watchDisks, a.watchKernel, a.watchValidation, a.watchFence, a.removeOldVerifications,
		a.watchLease, a.watchNotices, a.watchBlock,
	} {
		a.workers.Go(func() { part(background) })
	}
	a.loop(ctx)
	stop()
	a.finish()
	a.stopSockets()
	return nil
}

// finish waits for all workers. It still executes and records what they post, so that the next
// daemon knows everything that a start did.
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

// post queues a call for the loop.
func (a *Agent) post(call func()) {
	select {
	case a.calls <- call:
	case <-a.done:
	}
}

// Alive returns when the loop has taken a call, or ctx ends.
func (a *Agent) Alive(ctx context.Context) { _ = a.ask(ctx, func() {}) }

// ask runs call in the loop and waits for it.
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

// nudge fills a channel of capacity one.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
