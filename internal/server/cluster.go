package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/certs"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/server/journals"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/version"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// clusterService implements ClusterService.
type clusterService struct {
	*Server
	*certs.Service
	*journals.Reader
}

// GetStatus returns the state of the controllers as far as this one knows it. It waits for nothing.
// Only the leader knows the others: the answer's header names it.
func (s *clusterService) GetStatus(ctx context.Context, _ *greylagv1.GetStatusRequest) (*greylagv1.GetStatusResponse, error) {
	st, v := s.cfg.Members.Status(), s.cfg.State.View()
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok && st.LeaderAddr != "" && st.LeaderID != st.ID {
		info.ResponseHeader().Set(leaderHeader, st.LeaderAddr)
	}
	counts := v.Counts()
	p := &greylagv1.GetStatusResponse{
		Cluster: v.Policy().Cluster, ClusterId: s.cfg.Trust.ClusterID(), Id: st.ID, Leader: st.LeaderID, LeaderAddress: st.LeaderAddr,
		Term: st.Term, CommitIndex: st.CommitIndex, AppliedIndex: v.Index(), Version: version.Version, DiskLow: st.DiskLow,
		Digest: fmt.Sprintf("%016x", v.Digest()), ActiveJobs: int64(counts.Active), FinishedJobs: int64(counts.Finished),
		JournalForm: uint32(v.Credits().Format()), NewestForm: uint32(accounting.Form),
		Restored: writeRestored(v.History()),
	}
	if v.Index() == 0 { // a controller that started alone has read nothing of its log yet
		p.Cluster = pki.ClusterName(p.ClusterId)
	}
	if s.cfg.Orphans != nil && st.ID == st.LeaderID {
		p.BurstOrphans = uint32(s.cfg.Orphans())
	}
	if r := v.Hosts().Rotation(); r.Underway() {
		p.CaRotation = wire.Enum[greylagv1.RotationPhase](r.Phase.String())
	}
	if s.cfg.Missing != nil {
		p.ArchiveMissing = s.cfg.Missing()
	}
	for _, m := range st.Members {
		member := &greylagv1.Member{Id: m.ID, Address: m.Addr, Voter: m.Voter, Leader: m.ID == st.LeaderID, Name: certs.MemberName(v, m.ID)}
		if m.ID == st.ID {
			member.MatchIndex = st.LastIndex
			member.LastContact = durationpb.New(max(st.LastContact, 0))
		} else if contact, ok := st.Contacts[m.ID]; ok {
			member.MatchIndex = contact.LastIndex
			member.LastContact = durationpb.New(max(time.Since(contact.At), 0))
		}
		p.Members = append(p.Members, member)
	}
	return p, nil
}

// writeRestored returns the last restore from a backup; nil for none.
func writeRestored(h state.History) *greylagv1.Restored {
	if h.Restored == 0 {
		return nil
	}
	return &greylagv1.Restored{
		At: wire.Timestamp(h.Restored), Backup: wire.Timestamp(h.Taken), FirstJob: h.FirstJob, JobsSince: wire.Timestamp(h.JobsSince),
		CreditsLeftOut: h.Credits, AuditLeftOut: h.Audit,
	}
}

// GetInfo counts nodes and GPUs by partition and state.
func (s *clusterService) GetInfo(ctx context.Context, p *greylagv1.GetInfoRequest) (*greylagv1.GetInfoResponse, error) {
	names, err := wire.ReadNames(p.GetNodes())
	if err != nil {
		return nil, err
	}
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	if err := known(v, p.GetPartitions(), names); err != nil {
		return nil, err
	}
	counts := v.Counts()
	pending := int64(counts.ByState[cluster.Pending])
	response := &greylagv1.GetInfoResponse{AsOf: asOf, RunningJobs: int64(counts.Active) - pending, PendingJobs: pending}
	addRepairs(response, v, names)
	nodes := slices.Collect(v.Nodes())
	rate := cluster.RateOf(nodes, v.Now())
	response.FailureRate = &greylagv1.FailureRate{Failures: rate.Failures, NodeHours: rate.NodeHours}
	response.FailingNodes = hostlist.Compress(cluster.OftenFailing(nodes, v.Now()))
	reserved := reservedNow(v)
	for _, part := range v.Policy().Partitions {
		if only := p.GetPartitions(); len(only) > 0 && !slices.Contains(only, part.Name) {
			continue
		}
		if info := partitionInfo(v, part, names, reserved); len(names) == 0 || len(info.Groups) > 0 {
			response.Partitions = append(response.Partitions, info)
		}
	}
	if p.GetReservations() {
		response.Reservations = reservations(v, joblist.NewVisibility(call.From(ctx), v))
	}
	if p.GetLicences() {
		response.Licences = licences(v)
	}
	return response, nil
}

// addRepairs lists the nodes, among those named, that need a repair, or that the breaker keeps in service.
func addRepairs(response *greylagv1.GetInfoResponse, v *state.View, names []string) {
	var reset, reboot, undrained []string
	for n := range v.Nodes() {
		if len(names) > 0 && !slices.Contains(names, n.Name) {
			continue
		}
		switch n.Repair() {
		case cluster.RepairReset:
			reset = append(reset, n.Name)
		case cluster.RepairReboot:
			reboot = append(reboot, n.Name)
		}
		if len(n.Undrained()) > 0 {
			undrained = append(undrained, n.Name)
		}
	}
	response.ResetNodes, response.RebootNodes, response.UndrainedNodes = hostlist.Compress(reset), hostlist.Compress(reboot), hostlist.Compress(undrained)
}

// known returns an error for partitions and nodes that do not exist.
func known(v *state.View, partitions, nodes []string) error {
	for _, name := range partitions {
		if _, found := v.Policy().Partition(name); !found {
			return call.Refuse(command.NotFound, "gctl info lists the partitions", "no such partition: %.100s", name)
		}
	}
	for _, name := range nodes {
		if _, found := v.Node(name); !found {
			return call.Refuse(command.NotFound, "gctl info lists the nodes", "no such node: %.100s", name)
		}
	}
	return nil
}

// partitionInfo groups a partition's nodes by state and shape; only these nodes if any are given.
func partitionInfo(v *state.View, part cluster.Partition, only []string, reserved map[string][]string) *greylagv1.PartitionInfo {
	info := &greylagv1.PartitionInfo{Name: part.Name, Default: part.Default, Down: part.Down, MaxTime: durationpb.New(part.MaxTime)}
	groups, names := make(map[string]*greylagv1.NodeGroup), make(map[string][]string)
	for _, name := range v.PartitionNodes(part.Name) {
		n, ok := v.Node(name)
		if !ok || len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		use := v.Use(name)
		st, gpus := n.State(use), shape(n)
		key, word := fmt.Sprintf("%d %s", st, gpus), st.String()
		if st == cluster.NodeIdle && len(reserved[name]) > 0 {
			key, word = key+" reserved", "RESERVED"
		}
		g := groups[key]
		if g == nil {
			g = &greylagv1.NodeGroup{State: wire.Enum[greylagv1.NodeState](word), Gpus: gpus}
			groups[key] = g
		}
		names[key] = append(names[key], name)
		g.Nodes++
		g.GpusTotal += int32(len(n.GPUs))
		for _, used := range use.GPUs {
			if used {
				g.GpusUsed++
			}
		}
		g.CpusTotal += n.CPUs
		g.CpusUsed += use.CPUs
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		groups[key].NodeList = hostlist.Compress(names[key])
		info.Groups = append(info.Groups, groups[key])
	}
	return info
}

// shape returns a node's GPUs in words, such as "h100:8".
func shape(n *cluster.Node) string {
	count := make(map[string]int)
	for _, g := range n.GPUs {
		count[g.Type]++
	}
	var words []string
	for _, t := range slices.Sorted(maps.Keys(count)) {
		words = append(words, t+":"+strconv.Itoa(count[t]))
	}
	return strings.Join(words, ",")
}

// ListNodes lists nodes.
func (s *clusterService) ListNodes(ctx context.Context, p *greylagv1.ListNodesRequest) (*greylagv1.ListNodesResponse, error) {
	names, err := wire.ReadNames(p.GetNames())
	if err != nil {
		return nil, err
	}
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	in := make(map[string][]string)
	for _, part := range v.Policy().Partitions {
		for _, name := range v.PartitionNodes(part.Name) {
			in[name] = append(in[name], part.Name)
		}
	}
	response := &greylagv1.ListNodesResponse{AsOf: asOf}
	reserved := reservedNow(v)
	nodes := slices.Collect(v.Nodes())
	rate, failing := cluster.RateOf(nodes, v.Now()), cluster.OftenFailing(nodes, v.Now())
	add := func(n *cluster.Node) {
		p := wire.WriteNode(n, v.Use(n.Name), in[n.Name], v.Now())
		p.Reservations = reserved[n.Name]
		if len(p.Failures) > 0 {
			p.FailureScore, p.FailsOften = n.Score(v.Now(), rate), slices.Contains(failing, n.Name)
		}
		response.Nodes = append(response.Nodes, p)
	}
	if len(names) == 0 {
		for _, n := range nodes {
			add(n)
		}
		return response, nil
	}
	for _, name := range names {
		n, ok := v.Node(name)
		if !ok {
			return nil, call.Refuse(command.NotFound, "gctl info lists the nodes", "no such node: %.100s", name)
		}
		add(n)
	}
	return response, nil
}

// UpdateNodes drains, resumes or removes nodes.
func (s *clusterService) UpdateNodes(ctx context.Context, p *greylagv1.UpdateNodesRequest) (*greylagv1.UpdateNodesResponse, error) {
	c := call.From(ctx)
	action, err := wire.ReadNodeAction(p.GetAction())
	if err != nil {
		return nil, err
	}
	names, err := wire.ReadNames(p.GetNames())
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, call.Refuse(command.InvalidArgument, "", "no node is named")
	}
	id, err := c.Identify(p)
	if err != nil {
		return nil, err
	}
	answer, _, err := call.Propose[*command.Named](ctx, s.cfg.Leader, &command.UpdateNodes{
		Request: id, Actor: c.Actor(), Names: names, Action: action, Reason: p.GetReason(), Force: p.GetForce(), StayDrained: p.GetStayDrained(),
	})
	if err != nil {
		return nil, err
	}
	return &greylagv1.UpdateNodesResponse{Names: answer.Names, Index: answer.Index}, nil
}

// TransferLeadership transfers leadership and answers with the new leader.
func (s *clusterService) TransferLeadership(ctx context.Context, p *greylagv1.TransferLeadershipRequest) (*greylagv1.TransferLeadershipResponse, error) {
	if err := s.cfg.Members.Transfer(ctx, p.GetId()); err != nil {
		return nil, s.memberError(ctx, err)
	}
	ctx, cancel := context.WithTimeout(ctx, views.LeaderTime)
	defer cancel()
	for {
		if id, _ := s.cfg.Log.Leader(); id != "" && id != s.cfg.ID {
			return &greylagv1.TransferLeadershipResponse{Leader: id}, nil
		}
		if !views.Pause(ctx, views.LeaderPause) {
			return nil, views.ErrNoLeader
		}
	}
}

// StreamSnapshot streams a backup: the state, every script and environment that jobs may need,
// and on request the history.
func (s *clusterService) StreamSnapshot(ctx context.Context, p *greylagv1.StreamSnapshotRequest, stream *connect.ServerStream[greylagv1.StreamSnapshotResponse]) error {
	if err := s.views.CatchUp(ctx); err != nil {
		return err
	}
	if p.GetHistory() {
		if err := s.wholeHistory(); err != nil {
			return err
		}
	}
	if s.cfg.Save == nil {
		return call.Refuse(command.Internal, "", "this controller does not support backups")
	}
	missing := 0
	_, err := s.cfg.Members.Backup(ctx, pieces{stream}, raftlog.Contents{History: p.GetHistory(), Write: func(w io.Writer) (err error) {
		missing, err = s.cfg.Save(w, s.cfg.State.View(), p.GetHistory())
		return err
	}})
	if err != nil {
		return err
	}
	return stream.Send(&greylagv1.StreamSnapshotResponse{MissingContents: uint32(missing)})
}

// wholeHistory refuses a backup with history if this controller lacks part of the history.
func (s *clusterService) wholeHistory() error {
	gaps, err := s.cfg.Archive.Gaps()
	for j := range archive.LeaseJournal + 1 {
		rows, e := s.cfg.Archive.RowGaps(j)
		gaps, err = append(gaps, rows...), errors.Join(err, e)
	}
	if err == nil && len(gaps) > 0 {
		err = call.Refuse(command.Incomplete, "wait until it has fetched it, or use another controller: gctl --controller HOST:PORT cluster snapshot",
			"controller %s lacks part of the history", s.cfg.ID)
	}
	return err
}

// pieces sends in messages what is written to it.
type pieces struct {
	stream *connect.ServerStream[greylagv1.StreamSnapshotResponse]
}

// Write sends data in messages of at most 256 KiB.
func (p pieces) Write(data []byte) (int, error) {
	const most = 256 << 10
	for sent := 0; sent < len(data); sent += most {
		if err := p.stream.Send(&greylagv1.StreamSnapshotResponse{Data: data[sent:min(sent+most, len(data))]}); err != nil {
			return sent, err
		}
	}
	return len(data), nil
}
