package raftlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/greylag/greylag/internal/codec"
)

// ErrNewer is wrapped by an FSM's answer to a command that only a newer version knows: the member
// stops, since its state would diverge.
var ErrNewer = errors.New("a newer version of greylag is in use")

// FSM is the state that the log drives. Apply, Digest, Snapshot and Restore are called from one
// goroutine at a time, in log order. The state must depend only on the applied entries: no clock,
// no randomness, no disk.
type FSM interface {
	// Apply executes the commands of one entry and returns one result for each. at
	// is the leader's clock in unix ns; it may go back, so the FSM clamps it. A
	// command that cannot be executed is a result; an error that wraps ErrNewer, like a
	// panic, ends the process.
	Apply(index uint64, at int64, commands [][]byte) []any
	// Digest is a fingerprint of the whole state, O(1): equal states, equal digests.
	Digest() uint64
	// DigestVersion is the version of Digest, constant for the life of the process. Members with
	// different versions do not compare digests.
	DigestVersion() uint16
	// Snapshot captures the state as of the last Apply, O(1). Apply continues while it is written
	// out.
	Snapshot() (SnapshotWriter, error)
	// Restore replaces the state by one that a SnapshotWriter wrote. After an error
	// the state is undefined until the next Restore.
	Restore(r io.Reader) error
}

// SnapshotWriter writes a captured state out, concurrently with Apply.
type SnapshotWriter interface {
	WriteTo(w io.Writer) (int64, error)
	// Release is called once, whether or not WriteTo was.
	Release()
}

// digestWindow is the number of newest entries whose digests are remembered. A checkpoint is
// compared only if its entry is among them; at most a few hundred entries lie between its proposal
// and its application.
const digestWindow = 8192

type checkpoint struct {
	index, digest uint64
	version       uint16 // of the digest
}

// configuration is the newest committed membership that this member applied.
type configuration struct {
	index   uint64
	servers []raft.Server
}

// machine stands between raft and the FSM: it passes only whole entries, keeps the digests that
// checkpoints are compared with, and records the applied index.
type machine struct {
	fsm  FSM
	snap *snapshots
	// halt ends this member (open.go). damaged: its data is not to be trusted.
	halt func(code int, damaged bool, reason string)
	// joined is called with every committed configuration.
	joined func(configuration)
	log    *slog.Logger

	applying atomic.Bool // the FSM executes an entry

	broken error // a restore failed: the state is undefined until another succeeds; used only by the FSM's goroutine

	mu       sync.Mutex
	halted   bool
	applied  uint64        // every command up to here is in the state
	moved    chan struct{} // closed when applied grows; nil without waiters
	digests  []checkpoint  // ring by index
	config   configuration
	reported bool // that a member uses another digest version
}

var errHalted = errors.New("raftlog: this member has stopped")

func newMachine(fsm FSM, snap *snapshots) *machine {
	return &machine{fsm: fsm, snap: snap, digests: make([]checkpoint, digestWindow)}
}

// Apply passes one committed entry to the FSM and returns its results, []any, or an error.
func (m *machine) Apply(log *raft.Log) any {
	if m.isHalted() {
		return errHalted
	}
	if m.broken != nil {
		return m.stop(false, "entry %d: %v", log.Index, m.broken)
	}
	e, err := decodeEnvelope(log.Data)
	switch {
	case errors.Is(err, errUnsupported):
		return m.stop(false, "entry %d: %v: upgrade this member first", log.Index, err)
	case err != nil:
		return m.stop(!errors.Is(err, codec.ErrEarlier), "entry %d: %v", log.Index, err)
	}
	var results []any
	switch e.kind {
	case kindCommands:
		if results, err = m.apply(log.Index, e); err != nil {
			return m.stop(false, "entry %d: %v", log.Index, err)
		}
	case kindCheckpoint:
		if e.checkpoint.version != m.fsm.DigestVersion() {
			m.otherVersion(e.checkpoint.version)
		} else if own, known := m.digestAt(e.checkpoint.index); known && own != e.checkpoint.digest {
			return m.stop(true, "state diverged: after entry %d its digest is %016x, agreed is %016x", e.checkpoint.index, own, e.checkpoint.digest)
		}
	}
	m.advance(log.Index)
	return results
}

// apply runs the FSM and turns a panic into an error.
func (m *machine) apply(index uint64, e envelope) (results []any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("state machine panicked: %v\n%s", p, debug.Stack())
		}
	}()
	m.applying.Store(true)
	defer m.applying.Store(false)
	results = m.fsm.Apply(index, e.at, e.commands)
	if len(results) != len(e.commands) {
		return nil, fmt.Errorf("state machine answered %d of %d commands", len(results), len(e.commands))
	}
	for _, r := range results {
		if newer, is := r.(error); is && errors.Is(newer, ErrNewer) {
			return nil, fmt.Errorf("%w: upgrade this member first", newer)
		}
	}
	return results, nil
}

// otherVersion logs once that digests are not compared with all members.
func (m *machine) otherVersion(version uint16) {
	m.mu.Lock()
	reported := m.reported
	m.reported = true
	m.mu.Unlock()
	if !reported {
		m.log.Warn("another member runs another version of greylag: states are not compared with it until both run the same",
			"digests_here", m.fsm.DigestVersion(), "there", version)
	}
}

// stop ends this member; no more entries reach the FSM.
func (m *machine) stop(damaged bool, format string, args ...any) error {
	m.mu.Lock()
	m.halted = true
	m.mu.Unlock()
	m.halt(ExitDamaged, damaged, fmt.Sprintf(format, args...))
	return errHalted
}

func (m *machine) isHalted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.halted
}

// advance records that the state holds everything up to index.
func (m *machine) advance(index uint64) {
	digest := m.fsm.Digest()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied = index
	m.digests[index%digestWindow] = checkpoint{index, digest, m.fsm.DigestVersion()}
	if m.moved != nil {
		close(m.moved)
		m.moved = nil
	}
}

// StoreConfiguration is called by raft with every committed configuration.
func (m *machine) StoreConfiguration(index uint64, c raft.Configuration) {
	config := configuration{index, c.Clone().Servers}
	m.mu.Lock()
	m.config = config
	m.mu.Unlock()
	m.joined(config)
}

// Snapshot captures the state for raft.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.isHalted() {
		return nil, errHalted
	}
	w, err := m.fsm.Snapshot()
	if err != nil {
		return nil, err
	}
	return &capture{writer: w, head: snapshotHead{Index: m.appliedIndex(), Digest: m.fsm.Digest(), DigestVersion: m.fsm.DigestVersion()}}, nil
}

// Restore replaces the state by a snapshot that raft stored or received.
func (m *machine) Restore(rc io.ReadCloser) error {
	defer rc.Close()
	r, head, err := openFrames(rc)
	if err == nil {
		err = m.fsm.Restore(r)
	}
	if err == nil {
		err = r.drain()
	}
	if digest := m.fsm.Digest(); err == nil && head.DigestVersion == m.fsm.DigestVersion() && digest != head.Digest {
		err = fmt.Errorf("%w: its state has digest %016x, not %016x", errSnapshot, digest, head.Digest)
	}
	if m.broken = err; err != nil {
		m.broken = fmt.Errorf("restore snapshot: %w", err)
		return m.snap.failed(m.broken)
	}
	config, index := m.snap.opened()
	m.mu.Lock()
	m.config = config
	m.mu.Unlock()
	m.advance(index)
	m.joined(config)
	return nil
}

func (m *machine) appliedIndex() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied
}

func (m *machine) configuration() configuration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.config
}

// latest returns the newest entry in the state, with its digest.
func (m *machine) latest() checkpoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.digests[m.applied%digestWindow]
}

func (m *machine) digestAt(index uint64) (uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.digests[index%digestWindow]
	return d.digest, d.index == index && index != 0
}

// wait returns when the state holds everything up to index, or ctx is done.
func (m *machine) wait(ctx context.Context, index uint64) error {
	for {
		m.mu.Lock()
		if m.applied >= index {
			m.mu.Unlock()
			return nil
		}
		if m.moved == nil {
			m.moved = make(chan struct{})
		}
		moved := m.moved
		m.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
