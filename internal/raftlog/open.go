package raftlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// ErrDamaged is returned by Open, after Config.Fatal, when the content of Dir is not what was
// committed.
var ErrDamaged = errors.New("raftlog: the data directory is damaged")

// Log is one member. All methods may be called from any goroutine.
type Log struct {
	cfg     Config
	log     *slog.Logger
	self    identity
	raft    *raft.Raft
	store   *logStore
	reserve *reserve
	machine *machine
	mux     *mux
	trans   *transport
	prober  *prober
	clocks  *clocks
	changes leaderChanges

	leadership chan bool
	queue      chan *proposal
	slots      chan struct{}
	notify     chan struct{} // notified after an entry is settled
	entries    chan entry
	reads      chan *read

	ruling    atomic.Uint64 // the term in which this leader is confirmed; 0 if none
	sent      atomic.Uint64 // entries handed to raft
	settled   atomic.Uint64 // of these, completed
	took      atomic.Int64  // time to commit the last of them, in ns
	refused   atomic.Bool   // the last entry was refused because of a leadership transfer
	wasMember atomic.Bool
	crowded   atomic.Bool // as leader with a low disk, it found no voter with space
	// othersNoted is identity.json's OtherVoters.
	othersNoted atomic.Bool
	memberAt    atomic.Uint64 // as in identity.json

	life    context.Context // cancelled by stop
	endLife context.CancelFunc
	stop    chan struct{} // closed when the log begins to stop
	opened  chan struct{} // closed when Open has started everything, or failed
	dead    chan struct{} // closed when it has stopped
	once    sync.Once
	fault   error          // why it stopped by itself; read after stop
	closing error          // the error of stopping; read after dead
	wg      sync.WaitGroup // every goroutine started here
	handing handovers      // leadership transfers under way
	members sync.Mutex     // held while a membership change is checked and made
}

// Open starts a member on its data directory. If the directory is empty, the member is Fresh: it
// does nothing until Bootstrap, or until a leader adds it.
//
// Damage found in the directory ends the process by Config.Fatal(ExitDamaged). If other members
// hold the data too, the next Open sets the directory's content aside (quarantine-<time>/) and
// starts as a new member.
func Open(cfg Config, fsm FSM) (*Log, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l, err := prepare(cfg, fsm)
	if err != nil {
		return nil, err
	}
	if err := l.startRaft(); err != nil {
		close(l.opened)
		l.end(err)
		<-l.dead
		return nil, err
	}
	for _, f := range []func(){
		l.batch, l.settle, l.serveReads, l.followLeadership, l.watch, l.check, l.watchMembership,
		func() { l.reserve.watch(l.stop) },
	} {
		l.wg.Go(f)
	}
	l.mux.start()
	close(l.opened)
	return l, nil
}

// prepare opens everything but raft.
func prepare(cfg Config, fsm FSM) (*Log, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("raftlog: %w", err)
	}
	aside, err := setAside(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if aside != "" {
		cfg.Logger.Error("this member's data was damaged and is quarantined: add the member again", "quarantine", aside)
	}
	self, err := loadIdentity(cfg)
	if err != nil {
		return nil, err
	}
	if err := checkRemoved(cfg.Dir, self); err != nil {
		return nil, err
	}
	l := &Log{
		cfg: cfg, self: self, log: cfg.Logger.With("member", self.ID),
		leadership: make(chan bool), queue: make(chan *proposal, queueLength),
		slots: make(chan struct{}, inFlight), notify: make(chan struct{}, 1), entries: make(chan entry, inFlight),
		reads: make(chan *read), stop: make(chan struct{}), dead: make(chan struct{}), opened: make(chan struct{}),
	}
	l.life, l.endLife = context.WithCancel(context.Background())
	l.reserve = newReserve(cfg.Dir, cfg.ReserveBytes, l.log)
	snap, err := openSnapshots(cfg)
	if err != nil {
		return nil, err
	}
	l.machine = newMachine(fsm, snap)
	l.machine.log = l.log
	l.machine.halt, l.machine.joined = l.halt, l.joined
	l.othersNoted.Store(self.OtherVoters)
	l.memberAt.Store(self.MemberAt)
	l.store, err = openLog(cfg, self, snap, l.reserve)
	if err != nil {
		l.once.Do(func() {}) // nothing to shut down
		if errors.Is(err, errRecord) || errors.Is(err, errSnapshot) {
			err = l.refuseDamaged(err)
		}
		return nil, err
	}
	l.store.floor, l.store.synced = snap.floor, cfg.Observer.Synced
	l.mux = newMux(cfg.Stream, self, l.log)
	l.mux.probe, l.mux.refused, l.mux.ended = l.serveProbe, l.refusesMember, l.EndRemoved
	l.prober, l.clocks = newProber(l.mux), newClocks()
	return l, nil
}

func (l *Log) target() target {
	return target{id: l.self.ID, addr: l.cfg.Addr, incarnation: l.self.Incarnation}
}

// rpcTimeout bounds one message to a peer.
func (l *Log) rpcTimeout() time.Duration { return 5 * time.Second }

// raftConfig is hashicorp/raft's configuration for this member.
func raftConfig(cfg Config, self identity, log *slog.Logger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(self.ID)
	c.HeartbeatTimeout = cfg.Profile.Heartbeat
	c.ElectionTimeout = cfg.Profile.Election
	c.LeaderLeaseTimeout = cfg.Profile.Lease
	c.MaxAppendEntries = 256 // 64, the default, halves throughput at 1,024 callers
	c.BatchApplyCh = true
	c.ShutdownOnRemove = false // joined() stops this member, on the leader and elsewhere alike
	c.SnapshotThreshold = cfg.SnapshotThreshold
	c.SnapshotInterval = cfg.SnapshotInterval
	c.TrailingLogs = cfg.TrailingLogs
	c.Logger = logAdapter{log}.named("raft")
	return c
}

// startRaft reads the snapshot and the log and starts raft. Whatever it cannot
// read is damage; the library reports some of it by a panic. It also panics if it cannot store its term
// on a full disk, which is no damage.
func (l *Log) startRaft() (err error) {
	var found error
	l.store.damaged = func(reason string) { found = errors.Join(found, errors.New(reason)) }
	l.store.behind.leads = func() bool {
		return l.raft.State() == raft.Leader && len(voters(l.raft.GetConfiguration().Configuration().Servers)) > 1
	}
	trans := newTransport(l.mux, l.target(), l.rpcTimeout(), logAdapter{l.log})
	trans.onDisk = func(index uint64) error { return l.store.behind.wait(index, l.mux.closed) }
	defer func() {
		p := recover()
		if err == nil && p == nil {
			return
		}
		trans.Close()
		if p != nil {
			err = fmt.Errorf("raftlog: start: %v", p)
		}
		found = errors.Join(found, l.machine.snap.lastFailure())
		if found != nil || p != nil && !l.store.spent.Load() {
			err = l.refuseDamaged(errors.Join(err, found))
		}
	}()
	l.raft, err = raft.NewRaft(raftConfig(l.cfg, l.self, l.log), l.machine, l.store, l.store, l.machine.snap, trans)
	if err != nil {
		return fmt.Errorf("raftlog: start: %w", err)
	}
	l.trans = trans
	l.changes.watch(l.raft)
	l.store.damaged = func(reason string) { l.halt(ExitDamaged, true, reason) }
	l.store.failed = func(reason string) { l.halt(ExitStalled, false, "the disk fails: "+reason) }
	l.store.behind.allowed.Store(true) // the callback is set by now
	return nil
}

// refuseDamaged ends the process because of what Open found.
func (l *Log) refuseDamaged(found error) error {
	if l.store != nil || !l.othersNoted.Load() { // the record is newer than a snapshot
		l.machine.config = configuration{servers: knownServers(l.store, l.machine.snap)}
	}
	l.halt(ExitDamaged, true, found.Error())
	return fmt.Errorf("%w: %w", ErrDamaged, found)
}

// halt ends the process, and marks the data as damaged if it is and others hold it too. A lone
// member's data is kept for Recover.
func (l *Log) halt(code int, damaged bool, reason string) {
	said := []any{"reason", reason, "exit", code}
	switch {
	case damaged && l.othersVote():
		if err := (quarantine{Reason: reason, At: l.cfg.Clock()}).write(l.cfg.Dir); err != nil {
			said = append(said, "err", err)
		}
		said = append(said, "hint", "restart it: it quarantines its data and waits as a new member; remove the old one with gctl cluster remove "+l.self.ID)
	case damaged:
		said = append(said, "hint", "this is the only copy: run gctld recover to see what can be kept, or gctld restore with a backup into an empty data_dir")
	}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		l.log.Error("this member stops", said...)
	}()
	select { // the log may go to the disk that hangs
	case <-logged:
	case <-time.After(100 * time.Millisecond):
	}
	l.cfg.Fatal(code, reason)
	l.end(fmt.Errorf("%w: %s", errHalted, reason))
}

// othersVote reports whether the cluster has other voters than this member. If neither the log nor
// a snapshot says so, it uses identity.json.
func (l *Log) othersVote() bool {
	servers := l.machine.configuration().servers
	if len(servers) == 0 {
		return l.othersNoted.Load()
	}
	return l.othersAmong(servers)
}

func (l *Log) othersAmong(servers []raft.Server) bool {
	return slices.ContainsFunc(voters(servers), func(s raft.Server) bool { return string(s.ID) != l.self.ID })
}

// noteConfiguration updates identity.json with the newest committed configuration.
// member: this member is in it.
func (l *Log) noteConfiguration(c configuration, member bool) {
	if len(c.servers) == 0 {
		return
	}
	others := l.othersAmong(c.servers)
	changed := l.othersNoted.Swap(others) != others
	if member && c.index > l.memberAt.Load() {
		l.memberAt.Store(c.index)
		changed = true
	}
	if !changed {
		return
	}
	noted := l.self
	noted.HasLog, noted.OtherVoters, noted.MemberAt = true, others, l.memberAt.Load()
	if err := writeJSON(filepath.Join(l.cfg.Dir, identityFile), noted); err != nil {
		l.log.Warn("identity not updated", "err", err)
	}
}

// end makes the log stop by itself; it does not wait.
func (l *Log) end(why error) {
	l.once.Do(func() {
		l.fault = why
		if errors.Is(why, ErrRemoved) {
			l.markRemoved()
		}
		close(l.stop)
		l.endLife()
		go l.shutdown()
	})
}

// Done is closed when the log has stopped: after Close, or by itself (Err).
func (l *Log) Done() <-chan struct{} { return l.dead }

// Err returns why the log stopped by itself: ErrRemoved, or damage; nil if it runs or was closed.
func (l *Log) Err() error {
	select {
	case <-l.stop:
		return l.fault
	default:
		return nil
	}
}

// Close transfers leadership, if this member has it and others can take it, and stops. Waiting
// callers get ErrClosed, or ErrOutcomeUnknown.
func (l *Log) Close() error {
	if l.ruling.Load() != 0 && l.othersVote() && l.orClosed(nil) == nil {
		ctx, cancel := context.WithTimeout(l.life, 2*l.cfg.Profile.Election)
		l.Transfer(ctx, "") // if it fails, the others elect a leader after a timeout
		cancel()
	}
	l.end(nil)
	<-l.dead
	return l.closing
}

// closePatience bounds how long a disk that hangs can delay Close.
const closePatience = 10 * time.Second

// shutdown stops everything in order of dependency.
func (l *Log) shutdown() {
	defer close(l.dead)
	stopped := make(chan error, 1)
	go func() {
		<-l.opened // a member that was removed ends while raft starts
		var done raft.Future
		if l.raft != nil && l.store.behind.failure() != nil {
			done = l.stopRaft() // entries under way will never be committed
		}
		l.wg.Wait() // the batcher, and what it passed to raft
		if l.raft == nil {
			stopped <- errors.Join(l.mux.close(), l.store.close())
			return
		}
		if done == nil {
			done = l.stopRaft()
		}
		err := l.mux.close() // stops raft's waiting for peers
		stopped <- errors.Join(err, done.Error(), l.store.close())
	}()
	select {
	case l.closing = <-stopped:
	case <-time.After(closePatience):
		l.closing = errors.New("raftlog: disk hang: closed without waiting for it")
	}
}
