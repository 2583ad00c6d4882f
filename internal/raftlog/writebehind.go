package raftlog

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// writeBehind tracks entries that a leader sent to followers before its own disk has them: a disk
// write takes about as long as the round trip to the others, and both at once are faster than one
// after the other. Source: Ongaro, Consensus: Bridging Theory and Practice, 10.2.1.
//
// The library counts a leader's own copy when StoreLogs returns. That it may return earlier rests
// on four conditions:
//   - Only a leader with other voters does it, so that an entry is committed by their
//     acknowledgements; and the library learns of those only when this disk has the entry
//     too (transport.go). A committed entry is on the disks of a majority, including this one.
//   - Every other write waits until the disk has caught up: a term, a vote, the entries
//     of another leader. A leader that is replaced writes the new term before it
//     acknowledges anything in it, so it never acknowledges what only its memory has.
//   - Entries that change the voters are on disk before they are sent. So are all
//     entries while the disk has little space, or no reserve, so that a full disk refuses
//     them as usual.
//   - After a failed write nothing more is written, which would leave a hole in the
//     log, and the process ends (logStore.failed).
type writeBehind struct {
	allowed atomic.Bool // raft has started
	// leads reports whether this member leads and there are other voters.
	leads func() bool
	queue chan []*raft.Log
	ended chan struct{} // closed when the queue is closed and all of it is written
	once  sync.Once

	mu    sync.Mutex
	first []uint64      // the first index of each batch that is not on disk yet, in order
	last  uint64        // the last index of the newest batch
	err   error         // why the rest will never be written
	moved chan struct{} // closed when first or err changes; nil without waiters
}

// maxWriteBehind is how many batches may wait for the disk. Proposals are fewer: see inFlight.
const maxWriteBehind = 16

func newBehind() *writeBehind {
	return &writeBehind{queue: make(chan []*raft.Log, maxWriteBehind), ended: make(chan struct{})}
}

// takes reports whether these entries may be sent before they are on disk.
func (b *writeBehind) takes(logs []*raft.Log) bool {
	return b.allowed.Load() && b.leads() && !slices.ContainsFunc(logs, func(l *raft.Log) bool { return l.Type == raft.LogConfiguration })
}

// hand queues entries for run.
func (b *writeBehind) hand(logs []*raft.Log) {
	b.mu.Lock()
	b.first, b.last = append(b.first, logs[0].Index), logs[len(logs)-1].Index
	b.mu.Unlock()
	b.queue <- logs
}

// run writes the queued entries, in order, until close.
func (b *writeBehind) run(write func([]*raft.Log) error) {
	defer close(b.ended)
	for logs := range b.queue {
		if b.failure() == nil {
			b.done(write(logs))
		}
	}
}

func (b *writeBehind) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

func (b *writeBehind) done(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err = err; err == nil {
		b.first = b.first[1:]
	}
	if b.moved != nil {
		close(b.moved)
		b.moved = nil
	}
}

// everything is an index above every entry's.
const everything = math.MaxUint64

// wait returns when no entry up to index that was queued before is still unwritten, or with the
// error that prevents it; or with ErrClosed when stop is closed. Later entries do
// not prolong it: under load there are always more, and a truncation would wait permanently.
func (b *writeBehind) wait(index uint64, stop <-chan struct{}) error {
	b.mu.Lock()
	index = min(index, b.last)
	b.mu.Unlock()
	for {
		b.mu.Lock()
		if len(b.first) == 0 || b.first[0] > index || b.err != nil {
			defer b.mu.Unlock()
			if len(b.first) == 0 || b.first[0] > index {
				return nil
			}
			return b.err
		}
		if b.moved == nil {
			b.moved = make(chan struct{})
		}
		moved := b.moved
		b.mu.Unlock()
		select {
		case <-moved:
		case <-stop:
			return ErrClosed
		}
	}
}

// close returns when every queued entry is written.
func (b *writeBehind) close() {
	b.once.Do(func() { close(b.queue) })
	<-b.ended
}
