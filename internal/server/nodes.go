package server

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/version"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// nodeService implements NodeService, for the leader.
type nodeService struct{ *Server }

// heartbeat is the longest interval between two messages of the leader to a node.
const heartbeat = 5 * time.Second

// node returns the calling node, if this controller leads.
func (s *nodeService) node(ctx context.Context) (string, error) {
	c := call.From(ctx)
	if c.Machine.Role != pki.RoleNode || c.User.User != "" {
		return "", connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s is not a node", c))
	}
	if !s.views.Leads() {
		return "", raftlog.ErrNotLeader
	}
	return c.Machine.Name, nil
}

// RegisterNode registers the node.
func (s *nodeService) RegisterNode(ctx context.Context, p *greylagv1.RegisterNodeRequest) (*greylagv1.RegisterNodeResponse, error) {
	name, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	cmd, err := wire.ReadRegistration(p, name, call.From(ctx).Source)
	if err != nil {
		return nil, err
	}
	if !version.Compatible(p.GetVersion(), version.Version) {
		return nil, call.Refuse(command.Conflict, "upgrade the older one; tasks on the node keep running",
			"node %s runs version %s and this controller %s: they are more than one minor version apart", name, p.GetVersion(), version.Version)
	}
	if leaf := call.From(ctx).Leaf; leaf != nil {
		cmd.Issued = cluster.InstantOf(pki.Issued(leaf))
	}
	if n, ok := s.cfg.State.View().Node(name); ok && n.BootID != cmd.Node.BootID && s.logs.InSession(name) {
		// A host that was restarted registers when the connection of its former epoch is given up,
		// at most half a minute after it.
		return nil, call.Refuse(command.Conflict, "rejoin one of them under a unique name: gctl join",
			"node %s is connected from %s with another boot ID: duplicate host name, or the host just rebooted", name, n.Address)
	}
	// A slow clock cannot be distinguished from a request that waited for a leader: the node
	// compares the clock in the answer.
	if ahead := p.GetClock().AsTime().Sub(s.cfg.Clock()); p.GetClock() != nil && ahead > 5*time.Second {
		s.log.Warn("a node's clock is ahead of this controller's", "node", name, "by", ahead)
	}
	if err := s.checkLease(ctx, name); err != nil {
		return nil, err
	}
	answer, _, err := call.Propose[*command.Registered](ctx, s.cfg.Leader, cmd)
	if err != nil {
		return nil, err
	}
	s.cfg.Leader.RecordHeartbeat(name, answer.Epoch)
	v := s.cfg.State.View()
	return &greylagv1.RegisterNodeResponse{Epoch: answer.Epoch, Cluster: v.ClusterID(), ClusterName: v.Policy().Cluster, Clock: timestamppb.New(s.cfg.Clock())}, nil
}

// checkLease refuses a node whose lease has ended, so that it powers off. The state checks the other leases.
func (s *nodeService) checkLease(ctx context.Context, name string) error {
	id, leased := cluster.LeaseOf(name)
	l, known := s.cfg.State.View().Lease(id)
	if !leased || !known || l.State < cluster.LeaseTerminating {
		return nil
	}
	ended := s.explain(ctx, string(call.From(ctx).RPC.Name), call.Refuse(command.Conflict, "the node powers off", "the lease of node %s is %s", name, l.State))
	ended.Meta().Set(codeHeader, client.CodeLeaseEnded)
	return ended
}

// ReportTasks applies the full set of tasks on the node. A report without news is not proposed:
// what it repeats is durable already.
func (s *nodeService) ReportTasks(ctx context.Context, p *greylagv1.ReportTasksRequest) (*greylagv1.ReportTasksResponse, error) {
	name, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	report, err := wire.ReadReport(p, name)
	if err != nil {
		return nil, err
	}
	v := s.cfg.State.View()
	if n, ok := v.Node(name); ok && n.Epoch == report.Epoch {
		s.cfg.Leader.RecordHeartbeat(name, report.Epoch)
		for i, t := range p.GetTasks() {
			r := &report.Tasks[i]
			if !v.SameGrant(name, r) {
				continue
			}
			s.cfg.Leader.Ran(name, p.GetCounterEpoch(), r.Job, r.Attempt, time.Duration(t.GetRanMs())*time.Millisecond, r.Task.Phase >= cluster.TaskEnded)
		}
		if v.NothingNew(report) {
			return &greylagv1.ReportTasksResponse{Index: v.Index()}, nil
		}
	}
	_, index, err := call.Propose[*command.Done](ctx, s.cfg.Leader, report)
	if err != nil {
		return nil, err
	}
	return &greylagv1.ReportTasksResponse{Index: index}, nil
}

// GetContent returns a script or an environment of one of the node's tasks.
func (s *nodeService) GetContent(ctx context.Context, p *greylagv1.GetContentRequest) (*greylagv1.GetContentResponse, error) {
	name, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	var d cluster.Digest
	if copy(d[:], p.GetDigest()) != len(d) || len(p.GetDigest()) != len(d) {
		return nil, call.Refuse(command.InvalidArgument, "", "a digest has %d bytes, this one %d", len(d), len(p.GetDigest()))
	}
	for j := range s.cfg.State.View().OnNode(name) {
		if j.Spec.Script == d || j.Spec.Environment == d {
			content, err := s.blob(d)
			if err != nil && s.cfg.Absent != nil && s.cfg.Absent(d) {
				what := "script"
				if j.Spec.Script != d {
					what = "environment"
				}
				err = connect.NewError(connect.CodeDataLoss, fmt.Errorf("its %s is on no controller: submit the job again", what))
			}
			return &greylagv1.GetContentResponse{Content: content}, err
		}
	}
	return nil, call.Refuse(command.NotFound, "", "no task of node %s needs %s", name, d)
}

// WatchTasks sends the full set of tasks that should be on the node, now and after each change,
// until this controller no longer leads or the node registers again.
func (s *nodeService) WatchTasks(ctx context.Context, p *greylagv1.WatchTasksRequest, stream *connect.ServerStream[greylagv1.WatchTasksResponse]) error {
	name, err := s.node(ctx)
	if err != nil {
		return err
	}
	leading, ok := s.cfg.Leader.Leading()
	if !ok {
		return raftlog.ErrNotLeader
	}
	changes := s.cfg.Subscribe(name)
	defer changes.Close()
	if _, err := s.cfg.Log.ReadIndex(ctx); err != nil {
		return err
	}
	session := s.logs.Open(name)
	defer s.logs.Close(name, session)
	w := &wanted{node: name, epoch: p.GetEpoch(), seed: maphash.MakeSeed(), send: stream.Send}
	if err := w.tell(s.cfg.State.View()); err != nil {
		return err
	}
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-leading.Done():
			return raftlog.ErrNotLeader
		case <-ticker.C:
			err = stream.Send(&greylagv1.WatchTasksResponse{Heartbeat: true})
		case request := <-session.Requests:
			err = stream.Send(&greylagv1.WatchTasksResponse{Heartbeat: true, Logs: []*greylagv1.LogRequest{request}})
		case <-changes.C():
			changes.Take() // the whole set is checked
			err = w.tell(s.cfg.State.View())
		}
		if err != nil {
			return err
		}
	}
}

// PushLog answers a log request that came with WatchTasksResponse.
func (s *nodeService) PushLog(ctx context.Context, p *greylagv1.PushLogRequest) (*greylagv1.PushLogResponse, error) {
	node, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	return s.logs.Push(ctx, node, p)
}

// wanted is the set that one node was sent.
type wanted struct {
	node  string
	epoch uint64
	seed  maphash.Seed
	sent  uint64 // fingerprint of the set that was sent last
	begun bool
	send  func(*greylagv1.WatchTasksResponse) error
}

// tell sends the set if it differs from the last one. O(jobs of the node log n), and O(nodes of each job) if
// it sends.
func (w *wanted) tell(v *state.View) error {
	n, ok := v.Node(w.node)
	if !ok || n.Epoch != w.epoch {
		return call.Refuse(command.Conflict, "", "node %s has registered under another epoch", w.node)
	}
	var h maphash.Hash
	h.SetSeed(w.seed)
	for j, rank := range v.OnNode(w.node) {
		if j.Tasks.At(rank).Phase < cluster.TaskClean {
			signals := v.Signals(j.ID)
			warn, limit := v.Policy().InactiveTimes(j.Spec.QOS)
			large, most := v.Policy().OutputSizes(j.Spec.QOS)
			maphash.WriteComparable(&h, [...]any{j.ID, j.Attempt, wire.Stops(j, rank), len(signals), newest(signals), j.Spec.TimeLimit, v.Policy().KillWait, wire.Waits(j, rank), rank == 0 && j.CopiesOut(), wire.SignalBase(j), warn, limit, large, most, wire.MembersVersion(j)})
			for id, step := range j.ActiveSteps() {
				if at := step.On(rank); at >= 0 && !step.Nodes[at].Ended {
					maphash.WriteComparable(&h, [...]any{id, step.Stop, newestOf(step), step.Contact.Key})
				}
			}
		}
	}
	reboot := ""
	if n.RebootDue(v.Use(w.node)) {
		reboot = n.BootID
	}
	maphash.WriteComparable(&h, [...]any{reboot, n.Reboot.Since})
	print := h.Sum64()
	if w.begun && print == w.sent {
		return nil
	}
	w.begun, w.sent = true, print
	var tasks []*greylagv1.WantedTask
	for j, rank := range v.OnNode(w.node) {
		if j.Tasks.At(rank).Phase < cluster.TaskClean {
			w := wire.WriteWanted(j, rank, v.Span(j.Array), v.Policy().KillWait, signalsOf(v, j, rank))
			warn, limit := v.Policy().InactiveTimes(j.Spec.QOS)
			w.InactiveWarning, w.InactiveLimit = durationpb.New(warn), durationpb.New(limit)
			large, most := v.Policy().OutputSizes(j.Spec.QOS)
			w.OutputWarn, w.MaxOutput = int64(large), int64(most)
			tasks = append(tasks, w)
		}
	}
	return w.send(&greylagv1.WatchTasksResponse{Version: v.Index(), Tasks: tasks, Reboot: reboot, RebootRequested: wire.Timestamp(n.Reboot.Since)})
}

// signalsOf returns the signals for the tasks of a job on a node, since it belongs to the job.
func signalsOf(v *state.View, j *cluster.Job, rank int) []*greylagv1.Signal {
	var all []*greylagv1.Signal
	for _, s := range v.Signals(j.ID) {
		if s.ID <= j.SignalsFrom(rank) {
			continue
		}
		all = append(all, &greylagv1.Signal{Id: s.ID, Number: s.Number, BatchOnly: s.BatchOnly})
	}
	return all
}

func newest(signals []state.Signal) uint64 {
	if len(signals) == 0 {
		return 0
	}
	return signals[len(signals)-1].ID
}

func newestOf(step *cluster.Step) uint64 {
	if len(step.Signals) == 0 {
		return 0
	}
	return step.Signals[len(step.Signals)-1].ID
}
