package controller

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Archive is what a replica keeps next to its state: package archive.
type Archive interface {
	Append(index uint64, finished []archive.Record, blobs []archive.Blob) error
	Amend(index uint64, amended []archive.Record) error
	AppendRows(index uint64, j archive.Journal, rows []archive.Row) error
	Expect(seq uint64) error
	ExpectRows(j archive.Journal, seq uint64) error
	StartAt(first uint64) error
	StartRowsAt(j archive.Journal, first uint64) error
	Sync() error
}

// Replica is this controller's copy of the state. It is the log's state machine.
// View and Subscribe may be called from any goroutine.
type Replica struct {
	archive Archive
	log     *slog.Logger
	hub     hub
	newest  uint8 // form of the journal of credits that this version writes

	mu    sync.Mutex
	state *state.State
	view  atomic.Pointer[state.View] // of the newest entry; nil until requested

	restored chan struct{} // capacity 1: the state was replaced by a snapshot
}

// NewReplica is a replica of a cluster to which nothing has happened.
func NewReplica(a Archive, log *slog.Logger) *Replica {
	return &Replica{archive: a, log: log, newest: accounting.Form, state: state.New(), restored: make(chan struct{}, 1)}
}

// View is the state after the newest entry that was applied. It never changes. O(1).
func (r *Replica) View() *state.View {
	if v := r.view.Load(); v != nil {
		return v
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.view.Load(); v != nil {
		return v
	}
	v := r.state.View()
	r.view.Store(v)
	return v
}

// MemberRetired reports whether a controller's id was removed from the cluster.
func (r *Replica) MemberRetired(id string) bool {
	m, _ := r.View().Hosts().Controller(id)
	return m.Retired != 0
}

// Apply carries out the commands of one log entry. What cannot be decoded is
// answered by a refusal, the same on every replica; what a newer version wrote ends this
// one, since others carry it out.
func (r *Replica) Apply(index uint64, at int64, commands [][]byte) []any {
	results := make([]any, len(commands))
	restored := false
	r.mu.Lock()
	for i, data := range commands {
		c, err := r.decode(data)
		if errors.Is(err, command.ErrUnsupported) {
			results[i] = fmt.Errorf("%w: %w", raftlog.ErrNewer, err)
			continue
		}
		if err != nil {
			results[i] = &command.Refusal{Code: command.InvalidArgument, Message: err.Error()}
			continue
		}
		results[i] = r.state.Apply(index, cluster.Instant(at), c)
		if _, is := c.(*command.Restored); is {
			restored = true
		}
	}
	effects := r.state.Effects()
	r.view.Store(nil)
	r.mu.Unlock()
	r.keep(index, effects)
	if restored {
		if err := r.startHistory(r.View()); err != nil {
			r.log.Warn("cannot record in the archive where its history begins: restart this controller", "err", err)
		}
	}
	r.hub.publish(effects.Changed)
	return results
}

// startHistory keeps the archive from reporting what a restore left out as missing.
func (r *Replica) startHistory(v *state.View) error {
	h := v.History()
	return errors.Join(r.archive.StartAt(h.FirstJob), r.archive.StartRowsAt(archive.CreditJournal, h.Credits+1),
		r.archive.StartRowsAt(archive.AuditJournal, h.Audit+1), r.archive.StartRowsAt(archive.LeaseJournal, h.Leases+1))
}

// decode reads a command that this version can carry out.
func (r *Replica) decode(data []byte) (command.Command, error) {
	c, err := command.Decode(data)
	if t, is := c.(*command.Tick); is && t.Form > r.newest {
		return nil, fmt.Errorf("command: %w: credit journal format %d", command.ErrUnsupported, t.Form)
	}
	return c, err
}

// keep hands to the archive what the state does not keep.
func (r *Replica) keep(index uint64, e state.Effects) {
	if len(e.Entries) > 0 {
		r.appendRows(index, archive.CreditJournal, rowsOf(e.Entries))
	}
	if len(e.Audit) > 0 {
		r.appendRows(index, archive.AuditJournal, auditRows(e.Audit))
	}
	if len(e.Leases) > 0 {
		r.appendRows(index, archive.LeaseJournal, leaseRows(e.Leases))
	}
	if len(e.Finished)+len(e.Blobs) > 0 {
		blobs := make([]archive.Blob, len(e.Blobs))
		for i, b := range e.Blobs {
			blobs[i] = archive.Blob(b)
		}
		r.append(index, recordsOf(e.Finished), blobs)
	}
	if len(e.Amended) > 0 {
		r.warn(index, r.archive.Amend(index, recordsOf(e.Amended)))
	}
}

func (r *Replica) append(index uint64, finished []archive.Record, blobs []archive.Blob) {
	r.warn(index, r.archive.Append(index, finished, blobs))
}

func (r *Replica) appendRows(index uint64, j archive.Journal, rows []archive.Row) {
	r.warn(index, r.archive.AppendRows(index, j, rows))
}

// warn logs an archive error. The archive fails only after Close: the process is exiting, and the Raft log
// still has the entry.
func (r *Replica) warn(index uint64, err error) {
	if err != nil {
		r.log.Warn("not archived yet, the log keeps it", "index", index, "err", err)
	}
}

func rowsOf(entries []accounting.Entry) []archive.Row {
	rows := make([]archive.Row, len(entries))
	for i := range entries {
		rows[i] = archive.Row{Seq: entries[i].Seq, Data: entries[i].AppendRow(nil)}
	}
	return rows
}

func auditRows(entries []command.AuditEntry) []archive.Row {
	rows := make([]archive.Row, len(entries))
	for i := range entries {
		rows[i] = archive.Row{Seq: entries[i].Seq, Data: command.EncodeAudit(&entries[i])}
	}
	return rows
}

func leaseRows(ended []cluster.EndedLease) []archive.Row {
	rows := make([]archive.Row, len(ended))
	for i := range ended {
		rows[i] = archive.Row{Seq: ended[i].Seq, Data: command.EncodeEndedLease(&ended[i])}
	}
	return rows
}

func recordsOf(finished []state.Finished) []archive.Record {
	records := make([]archive.Record, len(finished))
	for i, f := range finished {
		records[i] = recordOf(f.Seq, f.Job, f.Record)
	}
	return records
}

func recordOf(seq uint64, job *cluster.Job, data []byte) archive.Record {
	return archive.Record{
		Seq: seq, ID: job.ID, User: job.Spec.Owner.User, Account: job.Spec.Account, State: job.State,
		Submitted: job.Submitted, Ended: job.Ended, Data: data,
	}
}

// Digest is the state's fingerprint.
func (r *Replica) Digest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Digest()
}

// DigestVersion tells how Digest is made.
func (r *Replica) DigestVersion() uint16 { return state.DigestVersion }

// Snapshot captures the state. O(1).
func (r *Replica) Snapshot() (raftlog.SnapshotWriter, error) {
	return snapshot{r.View(), r.archive}, nil
}

type snapshot struct {
	view    *state.View
	archive Archive
}

// WriteTo writes the snapshot, once all that the state has given to the archive is
// on disk: the log before the snapshot may be forgotten afterwards.
func (s snapshot) WriteTo(w io.Writer) (int64, error) {
	if err := s.archive.Sync(); err != nil {
		return 0, fmt.Errorf("the archive is behind: %w", err)
	}
	counter := &countingWriter{to: w}
	err := s.view.Encode(counter)
	return counter.n, err
}

type countingWriter struct {
	to io.Writer
	n  int64
}

// Write writes and counts.
func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}

// Release has nothing to free.
func (s snapshot) Release() {}

// Restore replaces the state by a snapshot. The archive gets the finished jobs that
// the snapshot still holds; what lies between is a gap that [Filler] fills.
func (r *Replica) Restore(from io.Reader) error {
	restored, err := state.Decode(from)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.state = restored
	r.view.Store(nil)
	view := restored.View()
	r.mu.Unlock()
	var tail []state.Finished
	for f := range view.Tail(0) {
		tail = append(tail, f)
	}
	r.append(view.Index(), recordsOf(tail), nil)
	if err := r.archive.Expect(view.FinishedSeq()); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	booked, _ := view.Credits().Head()
	audited, _ := view.Audited()
	for j, seq := range map[archive.Journal]uint64{archive.CreditJournal: booked, archive.AuditJournal: audited, archive.LeaseJournal: view.EndedLeases()} {
		if err := r.archive.ExpectRows(j, seq); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	if err := r.startHistory(view); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	r.hub.resync()
	select {
	case r.restored <- struct{}{}:
	default:
	}
	return nil
}

// Subscribe follows all changes.
func (r *Replica) Subscribe() *Subscription { return r.hub.subscribe("", nil) }

// SubscribeNode follows the changes of one node and of the jobs that have an
// allocation on it.
func (r *Replica) SubscribeNode(name string) *Subscription { return r.hub.subscribe(name, nil) }
