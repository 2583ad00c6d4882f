package gctl

import (
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
)

// The types of this file are the output of --json: a stable contract, documented
// in docs/man/json.md. Fields are only ever added.

type infoJSON struct {
	Partitions []partitionJSON `json:"partitions"`

	ResetNodes     string `json:"reset_nodes,omitempty"`
	RebootNodes    string `json:"reboot_nodes,omitempty"`
	UndrainedNodes string `json:"undrained_nodes,omitempty"`
	FailingNodes   string `json:"failing_nodes,omitempty"`
}

type partitionJSON struct {
	Name    string      `json:"name"`
	Default bool        `json:"default"`
	Down    bool        `json:"down"`
	MaxTime *int64      `json:"max_time,omitempty"` // seconds; left out: no limit
	Groups  []groupJSON `json:"groups"`
}

type groupJSON struct {
	State     string `json:"state"`
	Nodes     int32  `json:"nodes"`
	List      string `json:"list"`
	GPUs      string `json:"gpus,omitempty"` // of each node
	GPUsTotal int32  `json:"gpus_total"`
	GPUsUsed  int32  `json:"gpus_used"`
	CPUsTotal int32  `json:"cpus_total"`
	CPUsUsed  int32  `json:"cpus_used"`
}

func infoOf(answer *greylagv1.GetInfoResponse) infoJSON {
	out := infoJSON{Partitions: []partitionJSON{}, ResetNodes: answer.ResetNodes, RebootNodes: answer.RebootNodes, UndrainedNodes: answer.UndrainedNodes, FailingNodes: answer.FailingNodes}
	for _, p := range answer.Partitions {
		part := partitionJSON{Name: p.Name, Default: p.Default, Down: p.Down, Groups: []groupJSON{}}
		if limit := p.MaxTime.AsDuration(); limit > 0 {
			seconds := int64(limit / time.Second)
			part.MaxTime = &seconds
		}
		for _, g := range p.Groups {
			part.Groups = append(part.Groups, groupJSON{wire.Word(g.State), g.Nodes, g.NodeList, g.Gpus, g.GpusTotal, g.GpusUsed, g.CpusTotal, g.CpusUsed})
		}
		out.Partitions = append(out.Partitions, part)
	}
	return out
}

type nodeListJSON struct {
	Nodes []nodeJSON `json:"nodes"`
}

type nodeJSON struct {
	Name        string     `json:"name"`
	State       string     `json:"state"`
	Since       *time.Time `json:"since,omitempty"`
	Address     string     `json:"address,omitempty"`
	CPUs        int32      `json:"cpus"`
	CPUsUsed    int32      `json:"cpus_used"`
	Memory      int64      `json:"memory"`
	MemoryUsed  int64      `json:"memory_used"`
	GPUs        []gpuJSON  `json:"gpus"`
	Jobs        int32      `json:"jobs"`
	Gres        []gresJSON `json:"gres,omitempty"`
	Features    []string   `json:"features,omitempty"`
	Region      string     `json:"region,omitempty"`
	Partitions  []string   `json:"partitions,omitempty"`
	Reserved    []string   `json:"reservations,omitempty"`
	Drain       bool       `json:"drain"`
	Reason      string     `json:"reason,omitempty"`
	ReasonBy    string     `json:"reason_by,omitempty"`
	ReasonSince *time.Time `json:"reason_since,omitempty"`
	Fault       string     `json:"fault,omitempty"`
	FaultSince  *time.Time `json:"fault_since,omitempty"`
	Version     string     `json:"version,omitempty"`
	Runtime     string     `json:"runtime,omitempty"`
	Registered  *time.Time `json:"registered,omitempty"`
	Epoch       uint64     `json:"epoch"`

	Conditions      []conditionJSON `json:"conditions,omitempty"`
	Reboot          *rebootJSON     `json:"reboot,omitempty"`
	Fence           *fenceJSON      `json:"fence,omitempty"`
	DrainCause      string          `json:"drain_cause,omitempty"`
	DrainSuppressed bool            `json:"drain_suppressed,omitempty"`
	Failures        []failureJSON   `json:"failures,omitempty"`
	FailureScore    int64           `json:"failure_score,omitempty"`
	FailsOften      bool            `json:"fails_often,omitempty"`
	Repair          string          `json:"repair,omitempty"`
}

// gresJSON is a generic resource of a node.
type gresJSON struct {
	Name  string `json:"name"`
	Type  string `json:"type,omitempty"`
	Count int64  `json:"count"`
	Used  int64  `json:"used"`
}

type gpuJSON struct {
	Index  int32  `json:"index"`
	UUID   string `json:"uuid"`
	Type   string `json:"type"`
	Memory int64  `json:"memory"`
	Domain string `json:"domain,omitempty"`
	Used   bool   `json:"used"`
	Bad    string `json:"bad,omitempty"`

	Degraded string `json:"degraded,omitempty"`
	Repair   string `json:"repair,omitempty"`

	ParentType  string `json:"parent_type,omitempty"`
	ParentMinor *int32 `json:"parent_minor,omitempty"`
	Share       int32  `json:"share,omitempty"`

	Shared *sharedJSON `json:"shared,omitempty"`
}

type sharedJSON struct {
	Jobs    int32 `json:"jobs"`
	MaxJobs int32 `json:"max_jobs"`
	MPS     bool  `json:"mps,omitempty"`
}

type conditionJSON struct {
	Cause   string `json:"cause"`
	Effect  string `json:"effect"`
	Repair  string `json:"repair,omitempty"`
	Message string `json:"message"`
	Job     uint64 `json:"job,omitempty"`
}

// rebootJSON is a request to reboot a node.
type rebootJSON struct {
	WhenIdle    bool       `json:"when_idle"`
	Issued      bool       `json:"issued"`
	StayDrained bool       `json:"stay_drained,omitempty"`
	By          string     `json:"by"`
	Since       *time.Time `json:"since"`
	Reason      string     `json:"reason,omitempty"`
}

func rebootOf(r *greylagv1.NodeReboot) *rebootJSON {
	if r == nil {
		return nil
	}
	return &rebootJSON{r.WhenIdle, r.Issued, r.StayDrained, r.By, tool.Timestamp(r.Since), r.Reason}
}

// fenceJSON is the wait of jobs for proof that a node is off.
type fenceJSON struct {
	Since   *time.Time `json:"since"`
	Jobs    uint32     `json:"jobs"`
	Tries   uint32     `json:"tries"`
	Tried   *time.Time `json:"tried,omitempty"`
	Failure string     `json:"failure,omitempty"`
	Next    *time.Time `json:"next,omitempty"`
}

func fenceOf(f *greylagv1.NodeFence) *fenceJSON {
	if f == nil {
		return nil
	}
	return &fenceJSON{tool.Timestamp(f.Since), f.Jobs, f.Tries, tool.Timestamp(f.Tried), f.Failure, tool.Timestamp(f.Next)}
}

type failureJSON struct {
	Time  *time.Time `json:"time"`
	Cause string     `json:"cause"`
}

func gpuOf(g *greylagv1.GPU, used bool) gpuJSON {
	out := gpuJSON{
		Index: g.Index, UUID: g.Uuid, Type: g.Type, Memory: g.Memory, Domain: g.Domain, Used: used, Bad: g.Fault, Degraded: g.Degraded, Repair: wire.Word(g.Repair),
		ParentType: g.ParentType, Share: g.Share,
	}
	if g.ParentType != "" {
		out.ParentMinor = &g.Minor
	}
	return out
}

// sharedOf returns how jobs share a GPU; nil if none does.
func sharedOf(n *greylagv1.Node, index int32) *sharedJSON {
	for _, g := range n.SharedGpus {
		if g.Index == index {
			return &sharedJSON{g.Jobs, g.MaxJobs, g.Mps}
		}
	}
	return nil
}

func nodesOf(all []*greylagv1.Node) nodeListJSON {
	out := nodeListJSON{Nodes: []nodeJSON{}}
	for _, n := range all {
		used := make(map[int32]bool)
		for _, i := range n.GpusUsed {
			used[i] = true
		}
		node := nodeJSON{
			Name: n.Name, State: wire.Word(n.State), Since: tool.Timestamp(n.Since), Address: n.Address, CPUs: n.Cpus, CPUsUsed: n.CpusUsed,
			Memory: n.Memory, MemoryUsed: n.MemoryUsed, GPUs: []gpuJSON{}, Jobs: n.Jobs, Features: n.Features, Region: n.Region, Partitions: n.Partitions, Reserved: n.Reservations,
			Drain: n.Drain, Reason: n.Reason, ReasonBy: n.ReasonBy, ReasonSince: tool.Timestamp(n.ReasonSince), Fault: n.Fault, FaultSince: tool.Timestamp(n.FaultSince),
			Version: n.Version, Runtime: n.Runtime, Registered: tool.Timestamp(n.Registered), Epoch: n.Epoch,
			Reboot: rebootOf(n.Reboot), Fence: fenceOf(n.Fence), DrainCause: n.DrainCause, DrainSuppressed: n.DrainSuppressed, Repair: wire.Word(n.Repair),
			FailureScore: n.FailureScore, FailsOften: n.FailsOften,
		}
		for _, g := range n.Gpus {
			gpu := gpuOf(g, used[g.Index])
			gpu.Shared = sharedOf(n, g.Index)
			node.GPUs = append(node.GPUs, gpu)
		}
		for _, c := range n.Conditions {
			node.Conditions = append(node.Conditions, conditionJSON{c.Cause, wire.Word(c.Effect), wire.Word(c.Repair), c.Message, c.Job})
		}
		for _, f := range n.Failures {
			node.Failures = append(node.Failures, failureJSON{tool.Timestamp(f.Time), f.Cause})
		}
		for _, g := range n.Gres {
			node.Gres = append(node.Gres, gresJSON{g.Name, g.Type, g.Count, ui.GresUsed(n, g.Name)})
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}

type statusJSON struct {
	Cluster       string       `json:"cluster"`
	ClusterID     string       `json:"cluster_id"`
	ID            string       `json:"id"` // of the controller that answered
	Leader        string       `json:"leader,omitempty"`
	LeaderAddress string       `json:"leader_address,omitempty"`
	Term          uint64       `json:"term"`
	CommitIndex   *uint64      `json:"commit_index"` // null: unknown
	AppliedIndex  *uint64      `json:"applied_index"`
	Digest        string       `json:"digest,omitempty"`
	DiskLow       bool         `json:"disk_low"`
	Version       string       `json:"version"`
	ActiveJobs    *int64       `json:"active_jobs"`
	FinishedJobs  *int64       `json:"finished_jobs"`
	JournalForm   uint32       `json:"journal_form"`
	NewestForm    uint32       `json:"newest_form"`
	Archive       string       `json:"archive_missing,omitempty"`
	Restored      *restoreJSON `json:"restored,omitempty"`
	CARotation    string       `json:"ca_rotation,omitempty"`
	Members       []memberJSON `json:"members"`
}

type restoreJSON struct {
	At             *time.Time `json:"at"`
	Backup         *time.Time `json:"backup"`
	FirstJob       uint64     `json:"first_job,omitempty"`
	JobsSince      *time.Time `json:"jobs_since,omitempty"`
	CreditsLeftOut uint64     `json:"credits_left_out,omitempty"`
	AuditLeftOut   uint64     `json:"audit_left_out,omitempty"`
}

type memberJSON struct {
	ID          string  `json:"id"`
	Address     string  `json:"address"`
	Voter       bool    `json:"voter"`
	Leader      bool    `json:"leader"`
	LastContact float64 `json:"last_contact"` // seconds
	MatchIndex  uint64  `json:"match_index"`
	Name        string  `json:"name"` // of its host; "" if unknown
}

func statusOf(s *greylagv1.GetStatusResponse) statusJSON {
	out := statusJSON{
		s.Cluster, s.ClusterId, s.Id, s.Leader, s.LeaderAddress, s.Term, &s.CommitIndex, &s.AppliedIndex,
		s.Digest, s.DiskLow, s.Version, &s.ActiveJobs, &s.FinishedJobs, s.JournalForm, s.NewestForm, s.ArchiveMissing, nil, wire.Word(s.CaRotation), []memberJSON{},
	}
	if nothingApplied(s) {
		out.CommitIndex, out.AppliedIndex, out.Digest, out.ActiveJobs, out.FinishedJobs = nil, nil, "", nil, nil
	}
	if r := s.Restored; r != nil {
		out.Restored = &restoreJSON{tool.Timestamp(r.At), tool.Timestamp(r.Backup), r.FirstJob, tool.Timestamp(r.JobsSince), r.CreditsLeftOut, r.AuditLeftOut}
	}
	for _, m := range s.Members {
		out.Members = append(out.Members, memberJSON{m.Id, m.Address, m.Voter, m.Leader, m.LastContact.AsDuration().Seconds(), m.MatchIndex, m.Name})
	}
	return out
}
