package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/internal/version"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// Session is the node's side of NodeService; it finds the leader. A failed call ends the session; a
// new one begins with Register.
type Session interface {
	Register(context.Context, *greylagv1.RegisterNodeRequest) (*greylagv1.RegisterNodeResponse, error)
	// Wanted calls receive for every message until the stream ends or receive returns an error.
	Wanted(ctx context.Context, request *greylagv1.WatchTasksRequest, receive func(*greylagv1.WatchTasksResponse) error) error
	Report(context.Context, *greylagv1.ReportTasksRequest) (*greylagv1.ReportTasksResponse, error)
	Fetch(context.Context, *greylagv1.GetContentRequest) (*greylagv1.GetContentResponse, error)
	Secrets(context.Context, *greylagv1.GetSecretsRequest) (*greylagv1.GetSecretsResponse, error)
	PushLog(context.Context, *greylagv1.PushLogRequest) (*greylagv1.PushLogResponse, error)
}

const (
	// callTimeout is the timeout of one answer of the leader; it includes a commit.
	callTimeout = 15 * time.Second
	// silence is how long the leader may send nothing: it promises a heartbeat every 10 s.
	silence = 25 * time.Second
	// shortestPause and longestPause bound the pause between two sessions, which doubles.
	shortestPause, longestPause = 100 * time.Millisecond, 5 * time.Second
	// stableSession is how long a session must last before the next pause is the shortest again.
	stableSession = 10 * time.Second
)

// errSilent ends a session whose other side may be gone, errEnded one that the other side ended,
// and errReregister one whose node changed.
var (
	errSilent     = errors.New("no message from the controller")
	errEnded      = errors.New("the controller ended the session")
	errReregister = errors.New("the node changed")
)

// runSession keeps a session with the leader.
func (a *Agent) runSession(ctx context.Context) {
	pause := shortestPause
	for ctx.Err() == nil {
		began := time.Now()
		err := a.serveSession(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errReregister) {
			continue
		}
		if time.Since(began) > stableSession {
			pause = shortestPause
		}
		a.log.Warn("not connected to the controllers", a.noSession(err, pause)...)
		wait := pause/2 + rand.N(pause) // spreads the sessions of all nodes
		pause = min(2*pause, longestPause)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// noSession returns the log fields of a failed session: the error, the addresses that were dialed,
// the file that sets them, and the pause before the next attempt.
func (a *Agent) noSession(err error, pause time.Duration) []any {
	about := []any{"err", err}
	if a.cfg.Controllers != nil {
		about = append(about, "controllers", a.cfg.Controllers(), "file", a.cfg.File)
	}
	return append(about, "retry_in", pause)
}

// serveSession runs one session. It returns when any part of it fails.
func (a *Agent) serveSession(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	select { // the registration covers earlier changes
	case <-a.reregister:
	default:
	}
	epoch, version, err := a.register(ctx)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	a.log.Info("connected to the controllers", "epoch", epoch)
	a.post(func() { a.connected = true })
	defer a.post(func() { a.connected = false })
	nudge(a.reports)
	var parts sync.WaitGroup
	parts.Go(func() { cancel(a.listen(ctx, epoch)) })
	parts.Go(func() { cancel(a.reportAll(ctx, epoch, version)) })
	select {
	case <-ctx.Done():
	case <-a.reregister:
		cancel(errReregister)
	}
	parts.Wait()
	return context.Cause(ctx)
}

// register describes the node and stores its epoch. sent is the count of device changes that the
// description includes.
func (a *Agent) register(ctx context.Context) (epoch, version uint64, err error) {
	request := &greylagv1.RegisterNodeRequest{}
	if err := a.ask(ctx, func() { a.describe(request); version = a.badSince }); err != nil {
		return 0, 0, err
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asked := time.Now()
	request.Clock = timestamppb.New(asked)
	response, err := a.session.Register(limited, request)
	if err != nil {
		a.checkLeaseEnded(err)
		return 0, 0, err
	}
	a.recordContact(asked)
	if at := response.GetClock(); at != nil {
		off := clockOffset(asked, time.Now(), at.AsTime())
		a.post(func() { a.setCondition(causeClock, clockCondition(off)) })
		if off.Abs() > clockTolerance {
			a.log.Warn("the clock of this node differs from the controllers' clock", "ahead", off, "hint", "check time synchronization: chronyc tracking")
		}
	}
	var failed error
	if err := a.ask(ctx, func() { failed = a.registered(response) }); err != nil {
		return 0, 0, err
	}
	return response.GetEpoch(), version, failed
}

// clockTolerance is the tolerated difference between a node's clock and the controllers'.
const clockTolerance = 5 * time.Second

// clockOffset returns the least possible lead of this node's clock over a controller's, which read
// at between a request and its answer. It is negative if this clock is behind. A correct clock
// gives 0, however long the answer took.
func clockOffset(asked, answered, at time.Time) time.Duration {
	switch {
	case at.Before(asked):
		return asked.Sub(at)
	case at.After(answered):
		return answered.Sub(at)
	}
	return 0
}

func (a *Agent) describe(request *greylagv1.RegisterNodeRequest) {
	a.noteRepairs()
	a.noteResets()
	request.BootId = a.boot()
	request.Cpus = int32(a.host.cpus)
	request.Memory = int64(a.host.memory)
	request.Gpus = a.devices()
	request.Features, request.Region, request.Gres = a.cfg.Features, a.cfg.Region, wire.WriteGres(a.gres())
	request.Version = version.Version
	request.Runtime = a.cfg.RuntimeName
	request.Fault, request.Health = a.fault(), a.nodeHealth()
	if a.cfg.Lease != nil {
		request.Instance = a.cfg.Lease.Instance
	}
	for _, t := range a.tasks {
		if t.Phase < reconcile.Clean {
			request.Tasks++
		}
	}
}

// registered stores the node's identity. Tasks of another cluster are orphans: their numbers mean
// other jobs here.
func (a *Agent) registered(response *greylagv1.RegisterNodeResponse) error {
	a.unadmitted = nil // of an earlier session
	a.cluster = response.GetClusterName()
	id := a.identity
	if id.Cluster != "" && id.Cluster != response.GetCluster() {
		a.log.Warn("this node is in another cluster now", "cluster", response.GetCluster(), "before", id.Cluster)
		a.set, a.specs, a.floor, a.acted, a.foreign = nil, nil, 0, 0, true
		for _, t := range a.tasks {
			t.Doomed = "the node was moved to another cluster"
			a.dirty[t.ID] = true
		}
	}
	id.Cluster, id.Epoch = response.GetCluster(), response.GetEpoch()
	if id == a.identity {
		return nil
	}
	a.identity = id
	return a.db.SetIdentity(id)
}

// listen receives desired sets until the stream ends.
func (a *Agent) listen(ctx context.Context, epoch uint64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()
	err := a.session.Wanted(ctx, &greylagv1.WatchTasksRequest{Epoch: epoch}, func(message *greylagv1.WatchTasksResponse) error {
		watchdog.Reset(silence)
		return a.ask(ctx, func() { a.handleMessage(message) })
	})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("wanted tasks: %w", orElse(err, errEnded))
}

// orElse returns err, or otherwise if a stream ended without an error.
func orElse(err, otherwise error) error {
	if err == nil {
		return otherwise
	}
	return err
}

// handleMessage handles one message. It runs in the loop.
func (a *Agent) handleMessage(message *greylagv1.WatchTasksResponse) {
	if !message.GetHeartbeat() {
		a.unadmitted = message
	}
	// The leader sends a set only once while nothing changes. A set that was not admitted is
	// retried at each heartbeat.
	if a.unadmitted != nil && a.admit(wantedSet(a.unadmitted)) {
		a.orderReboot(rebootOrder{a.unadmitted.GetReboot(), a.unadmitted.GetRebootRequested().AsTime()})
		a.unadmitted = nil
	}
	a.asked = append(a.asked, message.GetLogs()...)
}

// reportAll sends the full actual set after every change, and periodically. One report is in flight
// at a time; changes meanwhile go into the next.
func (a *Agent) reportAll(ctx context.Context, epoch, version uint64) error {
	ticker := time.NewTicker(a.cfg.Report)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.reports:
		case <-ticker.C:
		}
		request, devices := &greylagv1.ReportTasksRequest{Epoch: epoch}, version
		if err := a.ask(ctx, func() { devices = a.report(request, version) }); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		sent := time.Now()
		_, err := a.session.Report(limited, request)
		cancel()
		if err != nil {
			a.reportErrors.Add(1)
			return fmt.Errorf("report: %w", err)
		}
		a.recordContact(sent)
		a.reportedAt.Store(time.Now().UnixNano())
		version = devices
	}
}

// report fills in the state of the node, in the loop. It lists the devices if they changed since
// sent.
func (a *Agent) report(request *greylagv1.ReportTasksRequest, version uint64) uint64 {
	a.noteRepairs()
	a.noteResets()
	request.Fault, request.Seen, request.Health = a.fault(), a.acted, a.nodeHealth()
	if version != a.badSince {
		request.Gpus = a.devices()
	}
	request.CounterEpoch, request.ReclaimAt = a.counting, wire.Timestamp(a.reclaim)
	for _, t := range a.tasks {
		if t.Phase < reconcile.Ended {
			t.ran = time.Since(t.firstSeen)
		}
		request.Tasks = append(request.Tasks, reported(t))
	}
	slices.SortFunc(request.Tasks, func(a, b *greylagv1.ReportedTask) int {
		return idOf(a).Compare(idOf(b))
	})
	return a.badSince
}

func idOf(r *greylagv1.ReportedTask) reconcile.ID {
	return reconcile.ID{Job: cluster.JobID(r.GetJob()), Attempt: cluster.Attempt(r.GetAttempt())}
}

// phaseWords maps phases to the words of the protocol. Recorded tasks that have not started are
// reported too: missing tasks count as lost.
var phaseWords = [...]string{
	reconcile.Accepted: "wanted", reconcile.Started: "started", reconcile.Ended: "ended", reconcile.Clean: "clean",
}

func reported(t *task) *greylagv1.ReportedTask {
	r := &greylagv1.ReportedTask{
		Job: uint64(t.ID.Job), Attempt: uint32(t.ID.Attempt), Phase: wire.Enum[greylagv1.TaskPhase](phaseWords[t.Phase]),
		Cause: wire.Enum[greylagv1.TaskCause](t.End.Cause.String()), ExitCode: t.End.Exit.Code, ExitSignal: t.End.Exit.Signal, Message: t.End.Message,
		MemoryPeak: int64(t.End.Memory), RanMs: t.ran.Milliseconds(),
		GpuBusyMs: t.GPU.BusyMs, GpuKnownMs: t.GPU.KnownMs, Granted: t.Granted, Stuck: t.stuck && t.Phase == reconcile.Ended,
	}
	if t.Phase == reconcile.Started {
		r.Inactive, r.IdleGpus, r.Output = t.inactivity.level, t.inactivity.idleGPUs, t.output
	}
	if t.Phase == reconcile.Accepted {
		r.Message = t.waitsFor(time.Now())
	}
	if t.Phase == reconcile.Clean && t.Copied != cluster.NotCopied {
		r.Copied = t.Copied == cluster.Copied
		if r.CopyFailed = !r.Copied; r.CopyFailed {
			r.Message = t.CopyFailure
		}
	}
	for _, run := range t.steps {
		if run.ended != nil {
			r.Steps = append(r.Steps, run.ended)
		}
	}
	slices.SortFunc(r.Steps, func(a, b *greylagv1.ReportedStep) int { return cmp.Compare(a.GetId(), b.GetId()) })
	if t.GPU.MemoryKnown {
		peak := int64(t.GPU.MemoryPeak)
		r.GpuMemoryPeakBytes = &peak
	}
	if t.End.Started != 0 {
		r.Started = timestamppb.New(t.End.Started.Time())
	}
	if t.End.Ended != 0 {
		r.Ended = timestamppb.New(t.End.Ended.Time())
	}
	if t.End.CPUTime != 0 {
		r.CpuTime, r.UserTime = durationpb.New(t.End.CPUTime), durationpb.New(t.End.User)
	}
	return r
}

// nodeHealth returns the conditions for a message; nil before the node has checked itself.
func (s *state) nodeHealth() *greylagv1.NodeHealth {
	if len(s.unchecked) > 0 {
		return nil
	}
	return &greylagv1.NodeHealth{Conditions: wire.WriteConditions(s.drainingConditions())}
}

// devices returns the GPUs of the node for a message.
func (s *state) devices() []*greylagv1.GPU {
	list := make([]*greylagv1.GPU, 0, len(s.inventory.Devices))
	for i := range s.inventory.Devices {
		d := &s.inventory.Devices[i]
		status := s.statusOf(d)
		list = append(list, &greylagv1.GPU{
			Index: d.Index, Uuid: d.UUID, Type: d.Type, Memory: int64(d.Memory), Minor: d.Minor,
			Numa: d.NUMA, Domain: d.Domain, Fault: status.Fault, Degraded: status.Degraded, Repair: greylagv1.Repair(status.Repair),
			ParentType: d.ParentType, Share: d.Share,
		})
	}
	return list
}
