package gctl

import (
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
)

type whyJSON struct {
	Job      ui.JobJSON      `json:"job"`
	Expected *time.Time      `json:"expected,omitempty"`
	Causes   []string        `json:"causes"`
	Unmet    []unmetJSON     `json:"unmet,omitempty"`
	More     int32           `json:"unmet_more,omitempty"`
	Needs    string          `json:"needs,omitempty"`
	Nodes    int32           `json:"nodes"`
	Could    int32           `json:"suitable"`
	Free     int32           `json:"free"`
	Ruled    []ruledJSON     `json:"exclusions"`
	Holders  []holderJSON    `json:"holders"`
	Licences []licenceJSON   `json:"licences,omitempty"`
	Ahead    int32           `json:"ahead"`
	First    []string        `json:"first"`
	Later    []keptJSON      `json:"later,omitempty"`
	Alone    *time.Time      `json:"start_alone,omitempty"`
	Delays   []rivalJSON     `json:"delays"`
	ClearUp  float64         `json:"cleanup_time"`
	Changes  []string        `json:"changes"`
	Promise  []hostShareJSON `json:"promise"`
	History  []noteJSON      `json:"history"`
	Awaited  []awaitedJSON   `json:"awaited,omitempty"`
	Again    bool            `json:"runs_again,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
}

type awaitedJSON struct {
	Node    string     `json:"node"`
	Silent  *time.Time `json:"silent_since,omitempty"`
	GivenUp *time.Time `json:"down_at,omitempty"`
	Waits   string     `json:"waits_for,omitempty"`
}

type unmetJSON struct {
	Job        string `json:"job"`
	User       string `json:"user"`
	State      string `json:"state"`
	Dependency string `json:"dependency"`
}

type ruledJSON struct {
	Says  string `json:"condition"`
	Nodes int32  `json:"nodes"`
}

type holderJSON struct {
	Job   string     `json:"job"`
	User  string     `json:"user"`
	Nodes int32      `json:"nodes"`
	Ends  *time.Time `json:"ends,omitempty"`
	// The job's count of each scarce licence.
	Licences map[string]int32 `json:"licences,omitempty"`
}

type hostShareJSON struct {
	Node string `json:"node"`
	GPUs int32  `json:"gpus"`
}

type keptJSON struct {
	Reservation string     `json:"reservation"`
	Nodes       int32      `json:"nodes"`
	Start       *time.Time `json:"start"`
	End         *time.Time `json:"end"`
}

type rivalJSON struct {
	Job      string     `json:"job"`
	User     string     `json:"user"`
	Planned  *time.Time `json:"planned,omitempty"`
	Promised bool       `json:"promised"`
	Why      string     `json:"why"`
}

type noteJSON struct {
	Index    uint64     `json:"index"`
	Time     *time.Time `json:"time"`
	Reason   string     `json:"reason"`
	Planned  *time.Time `json:"planned,omitempty"`
	Promised bool       `json:"promised"`
	Broken   string     `json:"broken,omitempty"`
}

type plannedJSON struct {
	Job       string          `json:"job"`
	User      string          `json:"user"`
	Partition string          `json:"partition"`
	State     string          `json:"state"`
	Start     *time.Time      `json:"start"`
	End       *time.Time      `json:"end,omitempty"`
	Promised  bool            `json:"promised"`
	GPUs      int32           `json:"gpus"`
	Hosts     []hostShareJSON `json:"hosts"`
}

// some returns a list that is never null in JSON.
func some(words []string) []string { return append([]string{}, words...) }

func hostSharesOf(shares []*greylagv1.NodeShare) []hostShareJSON {
	list := make([]hostShareJSON, len(shares))
	for i, s := range shares {
		list[i] = hostShareJSON{s.Node, s.Gpus}
	}
	return list
}

func whyOf(a *greylagv1.ExplainJobResponse) whyJSON {
	x := whyJSON{
		Job: ui.JobOf(a.Job), Expected: tool.Timestamp(a.Expected), Causes: some(a.Causes), Needs: a.Request, Nodes: a.Nodes, Could: a.SuitableNodes, Free: a.FreeNodes,
		Ruled: []ruledJSON{}, Holders: []holderJSON{}, Ahead: a.Ahead, First: []string{}, Alone: tool.Timestamp(a.StartAlone), Delays: []rivalJSON{}, ClearUp: a.CleanupTime.AsDuration().Seconds(), Changes: some(a.Changes),
		Promise: hostSharesOf(a.Promise), History: []noteJSON{}, Again: a.RunsAgain, Notes: a.Notes,
	}
	x.More = a.UnmetMore
	for _, u := range a.Unmet {
		x.Unmet = append(x.Unmet, unmetJSON{u.Job, u.User, wire.Word(u.State), u.Dependency})
	}
	for _, k := range a.Upcoming {
		x.Later = append(x.Later, keptJSON{k.Reservation, k.Nodes, tool.Timestamp(k.Start), tool.Timestamp(k.End)})
	}
	for _, r := range a.FirstAhead {
		x.First = append(x.First, r.Job)
	}
	for _, r := range a.Delays {
		x.Delays = append(x.Delays, rivalJSON{r.Job, r.User, tool.Timestamp(r.Planned), r.Promised, r.Reason})
	}
	for _, n := range a.Awaited {
		x.Awaited = append(x.Awaited, awaitedJSON{n.Node, tool.Timestamp(n.SilentSince), tool.Timestamp(n.DownAt), n.WaitsFor})
	}
	for _, r := range a.Exclusions {
		x.Ruled = append(x.Ruled, ruledJSON{r.Condition, r.Nodes})
	}
	for _, h := range a.Holders {
		holder := holderJSON{h.Job, h.User, h.Nodes, tool.Timestamp(h.Ends), map[string]int32{}}
		for _, l := range h.Licences {
			holder.Licences[l.Name] = l.Count
		}
		x.Holders = append(x.Holders, holder)
	}
	for _, l := range a.Licences {
		x.Licences = append(x.Licences, licenceJSON{l.Name, l.Total, l.Used, max(l.Total-l.Used, 0), l.Wanted})
	}
	for _, n := range a.History {
		x.History = append(x.History, noteJSON{n.Index, tool.Timestamp(n.Time), wire.Word(n.Reason), tool.Timestamp(n.Planned), n.Promised, n.Broken})
	}
	return x
}

func planOf(a *greylagv1.GetPlanResponse) any {
	list := make([]plannedJSON, len(a.Jobs))
	for i, j := range a.Jobs {
		list[i] = plannedJSON{j.Job, j.User, j.Partition, wire.Word(j.State), tool.Timestamp(j.Start), tool.Timestamp(j.End), j.Promised, j.Gpus, hostSharesOf(j.Hosts)}
	}
	return struct {
		Plan []plannedJSON `json:"plan"`
	}{list}
}
