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

// wantedTasks is a wanted set as the protocol tells it.
type wantedTasks map[reconcile.ID]*greylagv1.WantedTask

// task is a record and what is being done about it. Only the loop changes it.
type task struct {
	*taskdb.Task
	spec       *greylagv1.WantedTask // as accepted; nil for one found without a record
	work       reconcile.Work
	notBefore  cluster.Instant
	killed     cluster.Instant
	kills      int                    // how often SIGKILL was sent
	tries      int                    // of clearing it away
	waiting    time.Time              // since when it is to be started; zero: it was not tried
	postponed  string                 // why its start did not begin when it was tried last
	waitingFor atomic.Pointer[string] // what the start under way waits for; set by its worker
	watched    bool
	met        time.Time          // when this process first had it
	ran        time.Duration      // since then, until it ended
	gauged     time.Time          // up to when it was looked at how busy its GPUs are
	abandon    context.CancelFunc // of the start under way
	over       chan struct{}      // closed when it has ended
}

// newTask takes a record; spec is nil where the record has none.
func newTask(record *taskdb.Task, spec *greylagv1.WantedTask) *task {
	t := &task{Task: record, abandon: func() {}, over: make(chan struct{}), met: time.Now(), ran: record.End.Ran}
	t.gauged = t.met
	if record.Phase >= reconcile.Ended {
		close(t.over)
	}
	if spec != nil {
		t.setSpec(spec)
	}
	return t
}

func (t *task) setSpec(spec *greylagv1.WantedTask) {
	t.spec = spec
	// It was decoded a moment ago, or is in the record already.
	if data, err := proto.Marshal(spec); err == nil {
		t.Wanted = data
	}
}

// decodeWanted reads a record's specification; nil for none.
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

// idle tells whether the task only keeps the node for its job. Nothing runs
// then: there is nothing to start, to watch or to kill.
func (t *task) idle() bool { return t.spec != nil && t.spec.GetIdle() }

// own is this node's part of the job's allocation; nil where it is unknown.
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
	t.ran = time.Since(t.met) // for whoever hears of it, however late
	t.End = how
	t.End.Ran = t.ran
	if t.End.Started == 0 && how.Cause != cluster.LaunchFailed {
		t.End.Started = started
	}
	t.Phase = reconcile.Ended
	close(t.over)
	a.closeSocket(t.ID)
	t.notBefore = 0
	a.dirty[t.ID] = true
	nudge(a.reports)
}

// wantedSet reads a message into what reconcile compares.
func wantedSet(message *greylagv1.WantedResponse) (*reconcile.Set, wantedTasks) {
	set := &reconcile.Set{Version: message.GetVersion()}
	specs := wantedTasks{}
	for _, spec := range message.GetTasks() {
		id := reconcile.ID{Job: cluster.JobID(spec.GetJob()), Attempt: cluster.Attempt(spec.GetAttempt())}
		if id.Job == 0 || specs[id] != nil {
			continue // no such task can be told from another
		}
		wanted := reconcile.Wanted{ID: id, Stop: spec.GetStop(), KillWait: spec.GetKillWait().AsDuration(), Granted: spec.GetGranted()}
		for _, s := range spec.GetSignals() {
			wanted.Signals = append(wanted.Signals, reconcile.Signal{ID: s.GetId(), Number: s.GetNumber(), BatchOnly: s.GetBatchOnly()})
		}
		set.Tasks = append(set.Tasks, wanted)
		specs[id] = spec
	}
	return set, specs
}

// waitsFor returns what the start of the task waits for; "" if it has not waited for long.
// What a start lacked that did not begin is kept until another one lacks something else, so
// that the text does not alternate with the steps of each try.
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
