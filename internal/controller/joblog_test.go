package controller

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

func TestLogChanges(t *testing.T) {
	spec := &cluster.JobSpec{Owner: cluster.Identity{User: "alice"}, Account: "physics"}
	pending := &cluster.Job{ID: 7, Index: cluster.NoIndex, Spec: spec, State: cluster.Pending, Version: 3}
	running := *pending
	running.State, running.Attempt, running.Version = cluster.Running, 1, 4
	running.Alloc = &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1"}, {Node: "n2"}}}
	requeued := *pending
	requeued.Attempt, requeued.Restarts, requeued.Reason, requeued.Version = 1, 1, cluster.ReasonResources, 5
	failed := running
	failed.State, failed.Exit, failed.Version = cluster.Failed, cluster.Exit{Code: 2}, 6
	var changes []state.Change
	for _, c := range [][2]*cluster.Job{{nil, pending}, {pending, pending}, {pending, &running}, {&running, &requeued}, {nil, &failed}, {&failed, nil}} {
		changes = append(changes, state.Change{Kind: state.JobChanged, Old: c[0], New: c[1]})
	}
	if got, want := logged(changes, false), `msg="job submitted" job=7 user=alice account=physics index=3 trace_id=t7
msg="job started" job=7 user=alice account=physics index=4 attempt=1 node=n[1-2] trace_id=t7
msg="job requeued" job=7 user=alice account=physics index=5 attempt=1 reason=Resources trace_id=t7
msg="job submitted" job=7 user=alice account=physics index=6 trace_id=t7
msg="job started" job=7 user=alice account=physics index=6 attempt=1 node=n[1-2] trace_id=t7
msg="job ended" job=7 user=alice account=physics index=6 attempt=1 outcome=FAILED exit_code=2 exit_signal=0 node=n[1-2] trace_id=t7
`; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	many := make([]state.Change, maxJobLines+5)
	for i := range many {
		many[i] = state.Change{Kind: state.JobChanged, New: pending}
	}
	if got := logged(many, false); strings.Count(got, "\n") != maxJobLines+1 || !strings.HasSuffix(got, "count=5\n") {
		t.Errorf("%d lines, the last is %s", strings.Count(got, "\n"), got[len(got)-80:])
	}
	if got := logged(nil, true); !strings.Contains(got, fmt.Sprint("more_than=", maxChanges)) {
		t.Errorf("after an overflow: %s", got)
	}
}

// TestUnlogged leaves out nodes, and elements of an array that have not started, except the first.
func TestUnlogged(t *testing.T) {
	element := func(id cluster.JobID, attempt cluster.Attempt) state.Change {
		return state.Change{Kind: state.JobChanged, New: &cluster.Job{ID: id, Array: 5, Attempt: attempt}}
	}
	for i, c := range []struct {
		change state.Change
		want   bool
	}{
		{state.Change{Kind: state.NodeChanged, Node: "n1"}, true},
		{element(5, 0), false},
		{element(6, 0), true},
		{element(6, 1), false},
		{state.Change{Kind: state.JobChanged, New: &cluster.Job{ID: 9}}, false},
	} {
		if unlogged(&c.change) != c.want {
			t.Errorf("change %d: want %t", i, c.want)
		}
	}
}

func logged(changes []state.Change, resync bool) string {
	var b bytes.Buffer
	plain := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}
	logChanges(slog.New(slog.NewTextHandler(&b, plain)), func(id cluster.JobID) string { return fmt.Sprint("t", id) }, changes, resync)
	return b.String()
}
