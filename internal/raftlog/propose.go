package raftlog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Errors of Propose and the reads.
var (
	// ErrNotLeader reports that this member does not lead, or is transferring leadership. Nothing
	// happened; ask the member that Leader names.
	ErrNotLeader = errors.New("raftlog: not the leader")
	// ErrOutcomeUnknown reports that the entry was passed to the log and then leadership was lost,
	// time ran out or the disk failed. It may or may not be committed: retry with the same request
	// ID.
	ErrOutcomeUnknown = errors.New("raftlog: unknown whether the entry was committed")
	// ErrClosed reports that the log is closed. Nothing happened.
	ErrClosed = errors.New("raftlog: closed")
	// ErrTooLarge reports that the commands do not fit into one entry of MaxEntryBytes. Nothing
	// happened.
	ErrTooLarge = errors.New("raftlog: commands are too large for one entry")
	// ErrEmpty reports that no command was given. Nothing happened.
	ErrEmpty = errors.New("raftlog: no command given")
	// ErrBusy reports that the log takes no entries at the moment. Nothing happened.
	ErrBusy = errors.New("raftlog: the log takes no entries at the moment")
)

const (
	queueLength = 4096 // proposals that wait; further callers wait in Propose
	// inFlight entries may be under way at once. Meanwhile callers gather for the next one, so an
	// idle log answers without delay and a busy one shares each fsync among many.
	inFlight = 2
	// worthSending and worthBytes are the least number of waiting proposals, or bytes of the next
	// entry, for a second entry in flight: the cost of an entry does not depend on its size, and a
	// smaller one takes processor time from the first.
	worthSending, worthBytes = 128, 32 << 10
	// crowd, mostPatience: callers that are answered together propose again at about the same time.
	// From crowd callers on, the next entry waits until as many have proposed again, but no longer
	// than twice what the last one took, or mostPatience. Otherwise they split into two halves, and
	// each pays for entries of its own. The time of the last entry alone is too short where the
	// processors have as much to do for the callers as for the log.
	crowd        = 8
	mostPatience = 5 * time.Millisecond

	enqueueTimeout = 5 * time.Second
)

// proposal is one caller's commands. Its state moves from waiting to either taken
// (by the batcher) or abandoned (by the caller), never further.
type proposal struct {
	kind       byte
	commands   [][]byte
	checkpoint checkpoint
	size       int
	state      atomic.Int32
	done       chan outcome // room for one
}

const (
	waiting int32 = iota
	taken
	abandoned
)

type outcome struct {
	results []any
	index   uint64
	err     error
}

// Propose commits one command and returns its result and the index of its entry. It returns once a
// majority has the entry on disk and this member's state holds it. An error that does not wrap
// ErrOutcomeUnknown means that nothing happened.
func (l *Log) Propose(ctx context.Context, command []byte) (any, uint64, error) {
	results, index, err := l.ProposeMany(ctx, [][]byte{command})
	if err != nil {
		return nil, index, err
	}
	return results[0], index, nil
}

// ProposeMany commits commands together: all in one entry, in order, with nothing in between. The
// entry may hold other callers' commands before and after.
func (l *Log) ProposeMany(ctx context.Context, commands [][]byte) ([]any, uint64, error) {
	p := &proposal{kind: kindCommands, commands: commands, size: commandsSize(commands)}
	switch {
	case len(commands) == 0:
		return nil, 0, ErrEmpty
	case p.size+envelopeFixed+16 > MaxEntryBytes:
		return nil, 0, fmt.Errorf("%w: %d commands, %d bytes, limit %d", ErrTooLarge, len(commands), p.size, MaxEntryBytes)
	}
	return l.submit(ctx, p)
}

func (l *Log) submit(ctx context.Context, p *proposal) ([]any, uint64, error) {
	if l.raft.State() != raft.Leader {
		return nil, 0, l.orClosed(ErrNotLeader)
	}
	if p.kind != kindMark && l.ruling.Load() == 0 {
		if err := l.awaitConfirmedTerm(ctx); err != nil {
			return nil, 0, err
		}
	}
	p.done = make(chan outcome, 1)
	select {
	case l.queue <- p:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	case <-l.stop:
		return nil, 0, ErrClosed
	}
	select {
	case o := <-p.done:
		return o.results, o.index, o.err
	case <-ctx.Done():
		if p.state.CompareAndSwap(waiting, abandoned) {
			return nil, 0, ctx.Err()
		}
		return nil, 0, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	case <-l.dead:
		if p.state.CompareAndSwap(waiting, abandoned) {
			return nil, 0, ErrClosed
		}
		return nil, 0, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ErrClosed)
	}
}

// awaitConfirmedTerm waits until this leader's term is confirmed: until then it commits nothing.
func (l *Log) awaitConfirmedTerm(ctx context.Context) error {
	for l.ruling.Load() == 0 {
		if l.raft.State() != raft.Leader {
			return l.orClosed(ErrNotLeader)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		case <-l.stop:
			return ErrClosed
		}
	}
	return nil
}

// orClosed returns err, or ErrClosed if the log is closed.
func (l *Log) orClosed(err error) error {
	select {
	case <-l.stop:
		return ErrClosed
	default:
		return err
	}
}

// entry is one log entry under way.
type entry struct {
	future raft.ApplyFuture
	number uint64
	parts  []*proposal
	sent   time.Time
}

func (e *entry) commands() (n int) {
	for _, p := range e.parts {
		n += len(p.commands)
	}
	return n
}

// batch packs waiting proposals into entries, one at a time, until the log stops.
func (l *Log) batch() {
	defer close(l.entries)
	var next *proposal
	last := 0 // callers in the last entry
	for {
		if next == nil {
			select {
			case next = <-l.queue:
			case <-l.stop:
				l.refuseQueued()
				return
			}
		}
		callers := last // all of them were answered, unless some have gathered
		for len(l.slots) > 0 && len(l.queue) < worthSending && next.size < worthBytes {
			<-l.notify // callers gather meanwhile
			callers = last + len(l.queue) + 1
		}
		expected := l.expected(next, callers)
		l.slots <- struct{}{}
		var parts []*proposal
		parts, next = l.gather(next, expected)
		if len(parts) == 0 {
			<-l.slots
			continue
		}
		if parts[0].kind != kindMark && l.ruling.Load() == 0 { // lost meanwhile, and perhaps regained
			<-l.slots
			refuse(parts, ErrNotLeader)
			continue
		}
		last = len(parts)
		l.sent.Add(1)
		e := entry{number: l.sent.Load(), parts: parts, sent: time.Now()}
		e.future = l.raft.ApplyLog(raft.Log{Data: l.pack(parts)}, enqueueTimeout)
		l.entries <- e
	}
}

// expected returns how many callers the next entry waits for.
func (l *Log) expected(first *proposal, callers int) int {
	if callers < crowd || len(l.slots) > 0 || first.size >= worthBytes || first.kind != kindCommands {
		return 0
	}
	return min(callers, worthSending)
}

// gather takes waiting proposals, up to the limits of a shared entry, beginning with first, and for
// a moment those expected to come. Checkpoints and marks share no entry. It returns the one that
// did not fit.
func (l *Log) gather(first *proposal, expected int) (parts []*proposal, next *proposal) {
	count, size := 0, 0
	var over <-chan time.Time
	for p := first; p != nil; {
		shares := p.kind == kindCommands && (len(parts) == 0 || parts[0].kind == kindCommands)
		if len(parts) > 0 && (!shares || count+len(p.commands) > batchCommands || size+p.size > batchBytes) {
			return parts, p
		}
		if p.state.CompareAndSwap(waiting, taken) {
			parts, count, size = append(parts, p), count+len(p.commands), size+p.size
		}
		select {
		case p = <-l.queue:
			continue
		default:
			p = nil
		}
		if len(parts) >= expected {
			return parts, nil
		}
		if over == nil {
			over = time.After(min(2*time.Duration(l.took.Load()), mostPatience))
		}
		select {
		case p = <-l.queue:
		case <-over:
		case <-l.stop:
		}
	}
	return parts, nil
}

func (l *Log) pack(parts []*proposal) []byte {
	e := envelope{kind: parts[0].kind, at: l.cfg.Clock().UnixNano(), checkpoint: parts[0].checkpoint}
	for _, p := range parts {
		e.commands = append(e.commands, p.commands...)
	}
	return e.encode()
}

// settle answers the callers of each entry, in the order of the log.
func (l *Log) settle() {
	for e := range l.entries {
		err := l.classify(e.future.Error())
		<-l.slots
		select {
		case l.notify <- struct{}{}:
		default: // the last answer was not read yet
		}
		took := time.Since(e.sent)
		l.took.Store(int64(took))
		l.settled.Store(e.number)
		if err != nil {
			refuse(e.parts, err)
			continue
		}
		if n := e.commands(); n > 0 {
			l.cfg.Observer.Committed(took, n)
		}
		l.share(e)
	}
}

// refuse gives all callers of an entry the same error.
func refuse(parts []*proposal, err error) {
	for _, p := range parts {
		p.done <- outcome{err: err}
	}
}

// share distributes the results of an entry to its callers.
func (l *Log) share(e entry) {
	response := e.future.Response()
	results, ok := response.([]any)
	if failure, isErr := response.(error); isErr {
		refuse(e.parts, fmt.Errorf("%w: %w", ErrOutcomeUnknown, failure))
		return
	}
	for _, p := range e.parts {
		o := outcome{index: e.future.Index()}
		if n := len(p.commands); ok && n > 0 {
			o.results, results = results[:n:n], results[n:]
		}
		p.done <- o
	}
}

// classify translates raft's answer to an entry for its callers, and records refusals that should
// be temporary (watchdog.go).
func (l *Log) classify(err error) error {
	handover := errors.Is(err, raft.ErrLeadershipTransferInProgress)
	l.refused.Store(handover)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), handover:
		return l.orClosed(ErrNotLeader) // answered before the entry got an index
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return ErrBusy
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

func (l *Log) refuseQueued() {
	for {
		select {
		case p := <-l.queue:
			if p.state.CompareAndSwap(waiting, taken) {
				p.done <- outcome{err: ErrClosed}
			}
		default:
			return
		}
	}
}
