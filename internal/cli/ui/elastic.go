package ui

import (
	"fmt"
	"strconv"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/hostlist"
)

// elasticJSON is what an elastic job requests and, while it runs, the nodes that it has.
type elasticJSON struct {
	MinNodes  int32        `json:"min_nodes"`
	MaxNodes  int32        `json:"max_nodes"`
	Step      int32        `json:"step"`
	Signal    int32        `json:"resize_signal,omitempty"`
	BatchOnly bool         `json:"batch_only,omitempty"`
	Version   uint32       `json:"members_version,omitempty"`
	Resized   *time.Time   `json:"resized,omitempty"`
	Members   []memberJSON `json:"members,omitempty"`
}

type memberJSON struct {
	Node   string     `json:"node"`
	Number int32      `json:"number"`
	Joined *time.Time `json:"joined,omitempty"`
	Extra  bool       `json:"extra,omitempty"`
	Joins  bool       `json:"joins,omitempty"`
	Leaves *time.Time `json:"leaves,omitempty"`
	Why    string     `json:"why,omitempty"`
}

func writeElastic(j *greylagv1.Job) *elasticJSON {
	e := j.Elastic
	if e == nil {
		return nil
	}
	out := &elasticJSON{MinNodes: j.Request.GetNodes(), MaxNodes: j.Request.GetMaxNodes(), Step: e.Step, Signal: e.Signal, BatchOnly: e.BatchOnly}
	if m := j.Members; m != nil {
		out.Version, out.Resized = m.Version, Stamp(TimeOf(m.Resized))
		for _, x := range m.List {
			out.Members = append(out.Members, memberJSON{x.Node, x.Number, Stamp(TimeOf(x.Joined)), x.Extra, x.Joins, Stamp(TimeOf(x.Leaves)), x.Why})
		}
	}
	return out
}

// NodeRange returns the number of nodes that a job requests, or the minimum and the maximum, such as "4-16".
func NodeRange(j *greylagv1.Job) string {
	least, most := max(j.Request.GetNodes(), 1), j.Request.GetMaxNodes()
	if most <= least {
		return strconv.Itoa(int(least))
	}
	return fmt.Sprintf("%d-%d", least, most)
}

// ElasticText describes the nodes that an elastic job has now, its minimum and its maximum; "" for another job.
func ElasticText(j *greylagv1.Job) string {
	if j.Elastic == nil {
		return ""
	}
	text := fmt.Sprintf("%d to %d nodes in steps of %d", j.Request.GetNodes(), j.Request.GetMaxNodes(), j.Elastic.Step)
	if j.Members == nil {
		return text
	}
	stay, joins, extra := 0, 0, []string(nil)
	for _, x := range j.Members.List {
		switch {
		case x.Leaves != nil:
			continue
		case x.Joins:
			joins++
		}
		if stay++; x.Extra {
			extra = append(extra, x.Node)
		}
	}
	text = fmt.Sprintf("%d now, %s", stay, text)
	if len(extra) > 0 {
		text += "; extra: " + hostlist.Compress(extra)
	}
	if joins > 0 {
		text += fmt.Sprintf("; %d starting", joins)
	}
	return text
}

// CPUMillis returns how long the present attempt of an elastic job has had its CPUs until an instant, in milliseconds:
// their number multiplied by the time. resized is false if its nodes have not changed: then nothing is counted.
func CPUMillis(j *greylagv1.Job, end time.Time) (ms int64, resized bool) {
	m := j.Members
	if m.GetResized() == nil || len(m.List) != len(j.Nodes) {
		return 0, false
	}
	ms = m.GetLeft().GetHeld().GetCpuMs()
	for i, x := range m.List {
		ms += int64(j.Nodes[i].Cpus) * max(0, end.Sub(x.Joined.AsTime())).Milliseconds()
	}
	return ms, true
}
