package reports

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/report"
	"github.com/greylag/greylag/internal/report/parquet"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// madeReport is a report and its source.
type madeReport struct {
	head     *greylagv1.ReportHead
	manifest report.Manifest
	data     []byte
}

// make fetches the rows of a report and formats them.
func (r *reporting) make(ctx context.Context, c ui.Cluster, name string, period report.Period) (*madeReport, error) {
	if err := checkFormat(name, r.format); err != nil {
		return nil, err
	}
	out := &madeReport{manifest: report.Manifest{Report: name, Format: r.format}}
	if r.format == "xdmod" {
		jobs, head, err := r.ended(ctx, c, period)
		if err != nil {
			return nil, err
		}
		out.head, out.manifest.Rows, out.data = head, len(jobs), report.XDMoD(head.GetCluster(), jobs)
		return out, nil
	}
	if r.format == "focus" {
		made, err := r.focus(ctx, c, period)
		if err == nil {
			made.manifest.Report, made.manifest.Format = name, r.format
		}
		return made, err
	}
	table, head, err := r.table(ctx, c, name, period)
	if err != nil {
		return nil, err
	}
	out.head, out.manifest.Rows = head, len(table.Rows)
	out.data, err = written(&table, r.format, period)
	return out, err
}

// table is a report before formatting.
func (r *reporting) table(ctx context.Context, c ui.Cluster, name string, period report.Period) (report.Table, *greylagv1.ReportHead, error) {
	bounds := []time.Time{period.From, period.To}
	if name == "credits" {
		rows, head, err := r.credits(ctx, c, bounds)
		if err != nil {
			return report.Table{}, nil, err
		}
		return report.Credits(rows[0]), head, nil
	}
	if name == "burst" {
		return r.burst(ctx, c, bounds)
	}
	if name == "cluster" {
		rows, head, err := r.capacity(ctx, c, bounds)
		if err != nil {
			return report.Table{}, nil, err
		}
		return report.Cluster(rows), head, nil
	}
	rows, head, err := r.usage(ctx, c, bounds)
	if err != nil {
		return report.Table{}, nil, err
	}
	table, _ := report.Make(name, rows[0])
	return table, head, nil
}

// written formats a table; text output names its period.
func written(t *report.Table, format string, period report.Period) ([]byte, error) {
	switch format {
	case "csv":
		return t.CSV(), nil
	case "jsonl":
		return t.JSONL(), nil
	case "parquet":
		return parquet.Encode(t)
	}
	if len(t.Rows) == 0 {
		return []byte("nothing in " + period.String() + "\n"), nil
	}
	return append([]byte(period.String()+"\n"), t.Text()...), nil
}

func (r *reporting) request(bounds []time.Time) *greylagv1.Periods {
	request := &greylagv1.Periods{Grace: durationpb.New(r.grace)}
	for _, b := range bounds {
		request.Bounds = append(request.Bounds, timestamppb.New(b))
	}
	return request
}

// usage fetches the sums of jobs, by periods.
func (r *reporting) usage(ctx context.Context, c ui.Cluster, bounds []time.Time) ([][]report.Row, *greylagv1.ReportHead, error) {
	stream, err := c.Reports().StreamUsage(ctx, &greylagv1.StreamUsageRequest{Periods: r.request(bounds)})
	if err != nil {
		return nil, nil, err
	}
	defer stream.Close()
	periods := make([][]report.Row, len(bounds)-1)
	var head *greylagv1.ReportHead
	for stream.Receive() {
		if h := stream.Msg().GetHead(); h != nil {
			head = h
		}
		for _, row := range stream.Msg().GetRows() {
			period, key, tally := wire.ReadUsageRow(row)
			if period < len(periods) {
				periods[period] = append(periods[period], report.Row{Key: key, Tally: *tally})
			}
		}
	}
	return periods, head, stream.Err()
}

// capacity fetches the nodes of one period.
func (r *reporting) capacity(ctx context.Context, c ui.Cluster, bounds []time.Time) ([]report.Capacity, *greylagv1.ReportHead, error) {
	answer, err := c.Reports().GetCapacity(ctx, &greylagv1.GetCapacityRequest{Periods: r.request(bounds)})
	if err != nil {
		return nil, nil, err
	}
	note := ""
	switch since := answer.GetSince(); {
	case since == nil:
		note = "node records are missing"
	case since.AsTime().After(bounds[0]):
		note = fmt.Sprintf("node records begin at %s; earlier time is not counted", since.AsTime().Format(time.RFC3339))
	}
	if note != "" {
		r.noteOnce(note)
	}
	var rows []report.Capacity
	for _, x := range answer.GetRows() {
		rows = append(rows, report.Capacity{Resource: x.GetResource(), Total: x.GetTotal(), Allocated: x.GetAllocated(), Down: x.GetDown(), Drained: x.GetDrained()})
	}
	return rows, answer.GetHead(), nil
}

// ended fetches the jobs that ended in a period.
func (r *reporting) ended(ctx context.Context, c ui.Cluster, period report.Period) ([]report.Ended, *greylagv1.ReportHead, error) {
	stream, err := c.Reports().StreamEndedJobs(ctx, &greylagv1.StreamEndedJobsRequest{Periods: r.request([]time.Time{period.From, period.To})})
	if err != nil {
		return nil, nil, err
	}
	defer stream.Close()
	var jobs []report.Ended
	var head *greylagv1.ReportHead
	for stream.Receive() {
		if h := stream.Msg().GetHead(); h != nil {
			head = h
		}
		for _, j := range stream.Msg().GetJobs() {
			last := endedOf(j)
			jobs = append(append(jobs, attemptsOf(j, last)...), last)
		}
	}
	return jobs, head, stream.Err()
}

// endedOf converts a finished job for reports.
func endedOf(e *greylagv1.EndedJob) report.Ended {
	j, q := e.GetJob(), e.GetJob().GetRequest()
	at := func(t *timestamppb.Timestamp) time.Time {
		if t == nil {
			return time.Time{}
		}
		return t.AsTime()
	}
	out := report.Ended{
		Ref: j.GetRef(), ID: strconv.FormatUint(j.GetId(), 10), Partition: j.GetPartition(), QOS: j.GetQos(), Account: j.GetAccount(),
		User: j.GetUser(), UID: j.GetUid(), GID: j.GetGid(), Name: j.GetName(), State: wire.Word(j.GetState()), TimeLimit: j.GetTimeLimit().AsDuration(),
		Submitted: at(j.GetSubmitted()), Eligible: at(j.GetEligible()), Start: at(j.GetStarted()), End: at(j.GetEnded()),
		ExitCode: j.GetExitCode(), ExitSignal: j.GetExitSignal(), GPUTypes: strings.Join(q.GetGpuTypes(), ","),
	}
	asked := cluster.Request{
		Nodes: max(q.GetNodes(), 1), GPUsPerNode: q.GetGpusPerNode(), GPUs: q.GetGpus(), TasksPerNode: q.GetTasksPerNode(), CPUsPerTask: q.GetCpusPerTask(),
		MemPerNode: cluster.Bytes(q.GetMemPerNode()), MemPerCPU: cluster.Bytes(q.GetMemPerCpu()), MemPerGPU: cluster.Bytes(q.GetMemPerGpu()),
	}
	out.ReqCPUs, out.ReqNodes, out.ReqGPUs = asked.Requested(cluster.ResourceCPU), asked.Requested(cluster.ResourceNode), asked.Requested(cluster.ResourceGPU)
	out.ReqMemory = asked.Requested(cluster.ResourceMem) << 20
	names := make([]string, len(j.GetNodes()))
	for i, n := range j.GetNodes() {
		names[i] = n.GetNode()
	}
	out.Nodes, out.NodeList = int64(len(names)), hostlist.Compress(names)
	for _, x := range e.GetTres() {
		out.TRES = append(out.TRES, report.Count{Resource: x.GetResource(), Count: x.GetCount()})
		if x.GetResource() == cluster.ResourceCPU {
			out.CPUs = x.GetCount()
		}
	}
	return out
}

// attemptsOf returns the earlier attempts of a finished job, each as a job of its own that became
// eligible at the end of the previous one. Their nodes are not recorded.
func attemptsOf(e *greylagv1.EndedJob, last report.Ended) []report.Ended {
	list := make([]report.Ended, len(e.GetAttempts()))
	eligible := last.Submitted
	if begin := e.GetJob().GetBegin(); begin != nil && begin.AsTime().After(eligible) {
		eligible = begin.AsTime()
	}
	for i, a := range e.GetAttempts() {
		x := last
		x.Eligible, x.Start, x.End, x.State, x.Partition = eligible, a.GetStarted().AsTime(), a.GetEnded().AsTime(), wire.Word(a.GetOutcome()), a.GetPartition()
		x.Account, x.QOS = cmp.Or(a.GetAccount(), last.Account), cmp.Or(a.GetQos(), last.QOS)
		x.ExitCode, x.ExitSignal, x.Nodes, x.NodeList, x.CPUs, x.TRES = 0, 0, 0, "", 0, nil
		for _, t := range a.GetTres() {
			x.TRES = append(x.TRES, report.Count{Resource: t.GetResource(), Count: t.GetCount()})
			switch t.GetResource() {
			case cluster.ResourceCPU:
				x.CPUs = t.GetCount()
			case cluster.ResourceNode:
				x.Nodes = t.GetCount()
			}
		}
		list[i], eligible = x, x.End
	}
	return list
}
