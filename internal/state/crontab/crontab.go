// Package crontab stores the recurring jobs of users.
//
// It decides who may change an entry and how many entries a user may have. It never decides when an entry
// is due: the leader does. The leader then submits the job and records the outcome here.
package crontab

import (
	"cmp"
	"iter"
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bounds of the entries.
const (
	maxSchedule = 256       // bytes, also of a time zone
	maxPerUser  = 32        // entries
	maxJob      = 128 << 10 // bytes of one job, with script and environment
	maxJobs     = 64 << 20  // bytes of all jobs
)

// Key is the user and the name of an entry.
type Key struct{ User, Name string }

// Crontab is the table of all recurring jobs. It has one writer; any goroutine may read a clone.
type Crontab struct {
	entries table.Table[Key, *command.CronEntry]
	bytes   int // of all jobs
}

var schema = table.Schema[Key, *command.CronEntry]{ // never written
	Kind: table.Crons, Compare: compareKeys, Fields: table.Pointer(command.CronFields),
	KeyOf: func(e **command.CronEntry) Key { return keyOf(*e) },
}

func compareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(a.Name, b.Name))
}

func keyOf(e *command.CronEntry) Key { return Key{e.Owner.User, e.Name} }

// New returns an empty table.
func New(h *table.Hasher) Crontab { return Crontab{entries: table.New(&schema, h)} }

// Clone returns a table that later writes to x do not change. O(1).
func (x *Crontab) Clone(h *table.Hasher) Crontab { return Crontab{x.entries.Clone(h), x.bytes} }

// Digest returns the digest of the table. O(1).
func (x *Crontab) Digest() uint64 { return x.entries.Digest() }

// Encode writes the table into a snapshot.
func (x *Crontab) Encode(w *table.Writer) { x.entries.Encode(w) }

// Readers returns what reads the table from a snapshot.
func (x *Crontab) Readers() table.Readers {
	return table.Readers{table.Crons: func(c *codec.Coder) {
		if _, e := x.entries.Decode(c); e != nil {
			x.bytes += len(e.Job)
		}
	}}
}

// Check returns every invariant that does not hold. O(n).
func (x *Crontab) Check() []error {
	size := 0
	for _, e := range x.entries.All() {
		size += len(e.Job)
	}
	faults := []error{x.entries.Check()}
	if size != x.bytes {
		faults = append(faults, command.Refusef(command.Internal, "recurring jobs have %d bytes, counted %d", size, x.bytes))
	}
	return faults
}

// All yields the entries by user and name. They must not be changed.
func (x *Crontab) All() iter.Seq[*command.CronEntry] { return x.entries.Values() }

// Of yields the entries of a user by name. They must not be changed. O(log n) to the first.
func (x *Crontab) Of(user string) iter.Seq[*command.CronEntry] {
	return func(yield func(*command.CronEntry) bool) {
		for k, e := range x.entries.From(Key{User: user}) {
			if k.User != user || !yield(e) {
				return
			}
		}
	}
}

// Get finds an entry. It must not be changed. O(log n).
func (x *Crontab) Get(user, name string) (*command.CronEntry, bool) {
	return x.entries.Get(Key{user, name})
}

// put stores an entry that is not shared yet.
func (x *Crontab) put(e *command.CronEntry) {
	if old, known := x.entries.Get(keyOf(e)); known {
		x.bytes -= len(old.Job)
	}
	x.bytes += len(e.Job)
	x.entries.Set(keyOf(e), e)
}

// Set carries out a SetCron of the log entry index.
func (x *Crontab) Set(now cluster.Instant, index uint64, c *command.SetCron) (refusal *command.Refusal, keep bool) {
	e := &command.CronEntry{
		Owner: c.Actor.Identity, Name: c.Entry.Name, Schedule: c.Entry.Schedule, Zone: c.Entry.Zone, Queue: c.Entry.Queue,
		Job: c.Entry.Job, Version: index, Checked: now,
	}
	if refusal := checkEntry(e); refusal != nil {
		return refusal, false
	}
	old, known := x.entries.Get(keyOf(e))
	count, size := 0, x.bytes+len(e.Job)
	for range x.Of(e.Owner.User) {
		count++
	}
	if known {
		size -= len(old.Job)
	}
	switch {
	case known && old.Owner != e.Owner:
		return command.Refusef(command.Denied, "%q belongs to another user of the same name: uid %d", e.Name, old.Owner.UID), true
	case known && !c.Replace:
		return command.WithHint(command.Refusef(command.Conflict, "you have a recurring job %q already", e.Name), "replace it with --replace, or choose another name"), true
	case !known && count >= maxPerUser:
		return command.WithHint(command.Refusef(command.Exhausted, "you have %d recurring jobs, the limit", count), "remove some with gctl cron remove"), true
	case size > maxJobs:
		return command.Refusef(command.Exhausted, "the recurring jobs of all users have %d MiB, the limit", maxJobs>>20), true
	}
	if known {
		e.LastJob, e.Held = old.LastJob, old.Held
	}
	x.put(e)
	return nil, true
}

// checkEntry refuses an invalid entry.
func checkEntry(e *command.CronEntry) *command.Refusal {
	switch {
	case e.Owner.User == "":
		return command.Refuse(command.InvalidArgument, "a recurring job needs a user", "")
	case !cluster.ValidObjectName(e.Name):
		return command.WithHint(command.Refusef(command.InvalidArgument, "%q cannot name a recurring job", command.Sanitize(e.Name)), "use 1 to %d letters, digits, dots, hyphens and underscores, and begin with a letter or digit", cluster.MaxObjectName)
	case len(e.Schedule) > maxSchedule || len(e.Zone) > maxSchedule:
		return command.Refusef(command.InvalidArgument, "a schedule and a time zone have at most %d bytes", maxSchedule)
	case len(e.Job) > maxJob:
		return command.WithHint(command.Refusef(command.InvalidArgument, "the recurring job has %d KiB with script and environment, at most %d", len(e.Job)>>10, maxJob>>10), "export less with --export=NAME,..., or call a script in a file")
	}
	return command.CheckText("the schedule", e.Schedule, e.Zone)
}

// Update carries out an UpdateCron.
func (x *Crontab) Update(now cluster.Instant, c *command.UpdateCron) (refusal *command.Refusal, keep bool) {
	if len(c.Names) == 0 || len(c.Names) > maxPerUser {
		return command.Refusef(command.InvalidArgument, "%d recurring jobs to change: a request takes 1 to %d", len(c.Names), maxPerUser), false
	}
	for _, name := range c.Names {
		e, known := x.entries.Get(Key{c.User, name})
		if known && !c.Actor.Owns(e.Owner) && !c.Actor.Has(command.RoleOperator) {
			return command.Refusef(command.Denied, "the recurring job %q belongs to %s", name, c.User), true
		}
		if !known {
			return command.WithHint(command.Refusef(command.NotFound, "%s has no recurring job %q", command.Sanitize(c.User), command.Sanitize(name)), "list them with gctl cron list"), true
		}
	}
	for _, name := range c.Names {
		old, known := x.entries.Get(Key{c.User, name})
		if !known { // removed under the same name before
			continue
		}
		e := *old
		switch c.Action {
		case command.HoldCron:
			e.Held = true
		case command.ReleaseCron:
			if e.Held {
				e.Held, e.Checked = false, now
			}
		case command.RemoveCron:
			x.entries.Delete(keyOf(old))
			x.bytes -= len(old.Job)
			continue
		default:
			return command.Refusef(command.InvalidArgument, "unknown action %d", c.Action), false
		}
		x.put(&e)
	}
	return nil, true
}

// Record carries out a RecordCron.
func (x *Crontab) Record(now cluster.Instant, c *command.RecordCron) {
	old, known := x.entries.Get(Key{c.User, c.Name})
	if !known || old.Version != c.Version {
		return
	}
	e := *old
	e.Checked, e.Last, e.Error = max(e.Checked, c.Checked), now, command.Sanitize(c.Error)
	if c.Job != 0 {
		e.LastJob = c.Job
	}
	x.put(&e)
}
