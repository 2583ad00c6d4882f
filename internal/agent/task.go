package agent

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/internal/taskdb"
	"github.com/greylag/greylag/pkg/cluster"
)

// wantedTasks holds a desired set in the protocol's form.
type wantedTasks map[reconcile.ID]*greylagv1.WantedTask

// task is a record and its action in progress. Only the loop changes it.
type task struct {
	*taskdb.Task
	spec       *greylagv1.WantedTask // as accepted; nil for a task found without a record
	work       reconcile.Work
	notBefore  cluster.Instant
	killed     cluster.Instant
	kills      int                    // number of SIGKILLs sent
	killing    time.Time              // of the first SIGKILL that the runtime accepted
	stuck      bool                   // its processes outlive SIGKILL
	tries      int                    // number of failed removals
	removing   time.Time              // of the first try
	waiting    time.Time              // since when it is to be started; zero: not tried
	postponed  string                 // why the last start did not begin
	waitingFor atomic.Pointer[string] // what the start in progress waits for; set by its worker
	watched    bool
	firstSeen  time.Time          // when this process first had it
	askedAt    cluster.Instant    // when it last got its periodic checkpoint signal, or was first had
	ran        time.Duration      // running time since then, until it ended
	sampledAt  time.Time          // time of the last GPU sample
	abandon    context.CancelFunc // cancels the start in progress
	done       chan struct{}      // closed when it has ended
	steps      map[uint32]*stepRun
	inactivity inactivity
	members    uint32      // version of its members file; 0: not written since this daemon has it
	output     uint32      // how large its output is: see ReportedTask
	flooded    atomic.Bool // the node kills it because of the size of its output
	leftGPU    bool        // its processes are gone, and it does not use its GPU any more
	// stopCopying ends the copying of its files; nil: it has not begun.
	stopCopying context.CancelFunc
	others      chan struct{} // closed when the other nodes of its job are ready; nil: it need not wait
}

// newTask returns a task for a record; spec is nil if the record has none.
func newTask(record *taskdb.Task, spec *greylagv1.WantedTask) *task {
	t := &task{Task: record, abandon: func() {}, done: make(chan struct{}), firstSeen: time.Now(), ran: record.End.Ran}
	t.sampledAt, t.askedAt = t.firstSeen, cluster.InstantOf(t.firstSeen)
	if record.Phase >= reconcile.Ended {
		close(t.done)
	}
	if spec != nil {
		t.setSpec(spec)
	}
	return t
}

func (t *task) setSpec(spec *greylagv1.WantedTask) {
	t.spec = spec
	// The specification was decoded before, or is in the record already.
	if data, err := proto.Marshal(spec); err == nil {
		t.Wanted = data
	}
}

// decodeWanted decodes the specification of a record; nil for none.
func decodeWanted(data []byte) (*greylagv1.WantedTask, error) {
	if len(data) == 0 {
		return nil, nil
	}
	spec := &greylagv1.WantedTask{}
	if err := proto.Unmarshal(data, spec); err != nil {
		return nil, fmt.Errorf("specification: %w: %w", taskdb.ErrCorrupt, err)
	}
	return spec, nil
}

// own returns this node's part of the job's allocation; nil if unknown.
func (t *task) own() *greylagv1.NodeAllocation {
	nodes, rank := t.spec.GetNodes(), int(t.spec.GetRank())
	if rank < 0 || rank >= len(nodes) {
		return nil
	}
	return nodes[rank]
}

// end records how the task ended.
func (a *Agent) end(t *task, how cluster.Task) {
	if t.Phase >= reconcile.Ended {
		return
	}
	started := t.End.Started
	t.ran = time.Since(t.firstSeen) // included in every later report
	t.End = how
	t.End.Ran = t.ran
	if t.End.Started == 0 && how.Cause != cluster.LaunchFailed {
		t.End.Started = started
	}
	t.Phase = reconcile.Ended
	a.ends[min(how.Cause, cluster.MaxTaskCause)]++
	close(t.done)
	a.closeSocket(t.ID)
	t.notBefore = 0
	a.dirty[t.ID] = true
	nudge(a.reports)
}

// wantedSet converts a message to reconcile's form.
func wantedSet(message *greylagv1.WatchTasksResponse) (*reconcile.Set, wantedTasks) {
	set := &reconcile.Set{Version: message.GetVersion()}
	specs := wantedTasks{}
	for _, spec := range message.GetTasks() {
		id := reconcile.ID{Job: cluster.JobID(spec.GetJob()), Attempt: cluster.Attempt(spec.GetAttempt())}
		if id.Job == 0 || specs[id] != nil {
			continue // such tasks cannot be identified
		}
		wanted := reconcile.Wanted{ID: id, Stop: spec.GetStop(), KillWait: spec.GetKillWait().AsDuration(), Granted: spec.GetGranted()}
		for _, s := range spec.GetSignals() {
			wanted.Signals = append(wanted.Signals, reconcile.Signal{ID: s.GetId(), Number: s.GetNumber(), BatchOnly: s.GetBatchOnly()})
		}
		if c := spec.GetCheckpointSignal(); c != nil && spec.GetCheckpointBase() != nil {
			wanted.Periodic = reconcile.Signal{Number: c.GetNumber(), BatchOnly: c.GetBatchOnly()}
			wanted.Every, wanted.From = c.GetEvery().AsDuration(), cluster.InstantOf(spec.GetCheckpointBase().AsTime())
		}
		set.Tasks = append(set.Tasks, wanted)
		specs[id] = spec
	}
	return set, specs
}

// waitsFor returns what the start of the task waits for; "" if it has not waited for long. The
// reason of a start that did not begin is kept until a later start lacks something else, so that
// the text does not alternate with the steps of each attempt.
func (t *task) waitsFor(now time.Time) string {
	waitingFor := t.waitingFor.Load()
	switch {
	case t.waiting.IsZero() || now.Sub(t.waiting) < waitsAfter:
		return ""
	case t.postponed != "":
		return t.postponed
	case waitingFor != nil:
		return *waitingFor
	}
	return ""
}
