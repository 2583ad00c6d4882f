package raftlog

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// writeBehind is what a leader has sent on before its own disk has it: a disk takes about
// as long as the way to the others and back, and both at once is faster than one after
// the other. Source: Ongaro, Consensus: Bridging Theory and Practice, 10.2.1.
//
// The library counts a leader's own copy when StoreLogs returns. That it may return
// earlier rests on four things:
//   - Only a leader of several voters does it, so that an entry is agreed by what others
//     acknowledge; and the library hears of that only when this disk has the entry too
//     (transport.go). What is agreed is on the disks of a majority, this one among them.
//   - Whatever else is written waits for the disk to catch up: a term, a vote, the
//     entries of another leader. A leader that is replaced writes the new term before it
//     acknowledges anything in it, so it never acknowledges what only its memory has.
//   - Entries that change who votes are not sent on before they are on disk; nor are any
//     while the disk has little room, or no reserve, so that a full one refuses them as
//     it always did.
//   - After a write that failed nothing more is written, which would leave a hole in the
//     log, and the process ends (logStore.failed).
type writeBehind struct {
	allowed atomic.Bool // raft has started
	// leads reports whether this member leads and others vote besides it.
	leads func() bool
	queue chan []*raft.Log
	ended chan struct{} // closed when the queue is closed and all of it is written
	once  sync.Once

	mu    sync.Mutex
	first []uint64      // the first index of each batch that is not on disk yet, in order
	last  uint64        // the last index of the newest batch
	err   error         // why the rest will never be
	moved chan struct{} // closed when first or err changes; nil if nobody waits
}

// maxWriteBehind is how many batches may wait for the disk. Proposals are fewer: see inFlight.
const maxWriteBehind = 16

func newBehind() *writeBehind {
	return &writeBehind{queue: make(chan []*raft.Log, maxWriteBehind), ended: make(chan struct{})}
}

// takes reports whether these entries may be sent on before they are on disk.
func (b *writeBehind) takes(logs []*raft.Log) bool {
	return b.allowed.Load() && b.leads() && !slices.ContainsFunc(logs, func(l *raft.Log) bool { return l.Type == raft.LogConfiguration })
}

// hand leaves entries to run.
func (b *writeBehind) hand(logs []*raft.Log) {
	b.mu.Lock()
	b.first, b.last = append(b.first, logs[0].Index), logs[len(logs)-1].Index
	b.mu.Unlock()
	b.queue <- logs
}

// run writes what is handed over, in order, until close.
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

// everything is an index that no entry has.
const everything = math.MaxUint64

// wait returns when no entry up to index that was handed over before is still on its way
// to the disk, or with the error for which one never will be; or with ErrClosed when stop
// is closed. What is handed over meanwhile does not prolong it: under load there is always
// more, and whoever shortens the log would wait for ever.
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

// close returns when everything that was handed over is written.
func (b *writeBehind) close() {
	b.once.Do(func() { close(b.queue) })
	<-b.ended
}
