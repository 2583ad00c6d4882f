package spans

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

const second = cluster.Instant(time.Second)

// restarted is a job that was held for 10 s, ran on one node until it failed, and then on two nodes.
func restarted() *cluster.Job {
	tasks := cluster.NewTasks(
		cluster.Task{Node: "n1", Cause: cluster.Exited, Started: 72 * second, Ended: 90 * second},
		cluster.Task{Node: "n2", Cause: cluster.Exited, Exit: cluster.Exit{Code: 3}, Started: 75 * second, Ended: 92 * second},
	)
	return &cluster.Job{
		ID: 7, Index: cluster.NoIndex, State: cluster.Failed, Attempt: 2, Restarts: 1,
		Spec:      &cluster.JobSpec{Name: "train", Owner: cluster.Identity{User: "alice"}, Account: "physics", Partition: "main", QOS: "normal"},
		Submitted: 1 * second, Eligible: 11 * second, Started: 70 * second, Ended: 91 * second, Tasks: tasks,
		TRES:     []cluster.Amount{{Resource: "gpu", Count: 4}},
		Attempts: []cluster.AttemptRecord{{Attempt: 1, Started: 20 * second, Ended: 60 * second, Outcome: cluster.NodeFailed}},
		History: []cluster.Note{
			{At: 12 * second, Reason: cluster.ReasonResources, Planned: 20 * second, Promised: true},
			{At: 61 * second, Reason: cluster.ReasonResources, Broken: "node"},
		},
	}
}

func TestOf(t *testing.T) {
	var got strings.Builder
	names := map[SpanID]string{}
	list := Of("site", restarted())
	for _, s := range list {
		if names[s.ID] != "" {
			t.Errorf("%s and %s have one identifier", names[s.ID], s.Name)
		}
		names[s.ID] = s.Name
		fmt.Fprintf(&got, "%s < %s: %d to %d", s.Name, names[s.Parent], s.From/second, s.To/second)
		if s.Failed != "" {
			fmt.Fprintf(&got, ", %s", s.Failed)
		}
		for _, e := range s.Events {
			fmt.Fprintf(&got, ", %s at %d", e.Name, e.At/second)
		}
		got.WriteByte('\n')
	}
	const want = `job < : 1 to 92, FAILED
ineligible < job: 1 to 11
queue < job: 11 to 20, promised at 12
attempt < job: 20 to 60, NODE_FAIL
queue < job: 60 to 70, promise broken at 61
attempt < job: 70 to 92, FAILED
configure < attempt: 70 to 72
run < attempt: 72 to 90
configure < attempt: 70 to 75
run < attempt: 75 to 92, exited
complete < attempt: 91 to 92
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	if again := Of("site", restarted()); again[3].ID != list[3].ID || again[0].Trace != list[0].Trace {
		t.Error("the identifiers of the same job differ")
	}
	if other := Of("elsewhere", restarted()); other[0].Trace == list[0].Trace {
		t.Error("jobs of two clusters have one trace")
	}
}

// TestNeverStarted has a job that was cancelled while it waited.
func TestNeverStarted(t *testing.T) {
	j := restarted()
	j.State, j.Attempt, j.Started, j.Tasks, j.Attempts, j.History = cluster.Cancelled, 0, 0, nil, nil, nil
	list := Of("site", j)
	if len(list) != 3 || list[1].Name != "ineligible" || list[2].Name != "queue" || list[2].To != j.Ended {
		t.Errorf("spans: %+v", list)
	}
}

func TestSampled(t *testing.T) {
	n := 0
	for id := range cluster.JobID(10_000) {
		trace := TraceOf("site", id)
		if trace.Sampled(0) || !trace.Sampled(100) {
			t.Fatal("a share of none or all does not hold for job", id)
		}
		if trace.Sampled(10) {
			n++
		}
	}
	if n < 900 || n > 1100 {
		t.Errorf("%d of 10000 jobs are in a share of 10 %%", n)
	}
}

func TestSend(t *testing.T) {
	status, answer := http.StatusOK, `{"partialSuccess":{"rejectedSpans":"2"}}`
	var got map[string]any
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err = errors.Join(err, json.Unmarshal(body, &got)); err != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("request %q: %v", body, err)
		}
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	defer collector.Close()
	s := NewSender(collector.URL, "site", "0.1.0")
	rejected, err := s.Send(context.Background(), Of("site", restarted()))
	if err != nil || rejected != 2 {
		t.Errorf("%d rejected, %v", rejected, err)
	}
	for text, want := range map[string]int{`{"partialSuccess":{"rejectedSpans":"1000"}}`: 11, `{"partialSuccess":{"rejectedSpans":-5}}`: 0, "<html>": 0} {
		answer = text
		if rejected, err := s.Send(context.Background(), Of("site", restarted())); err != nil || rejected != want {
			t.Errorf("answer %s: %d rejected, %v", text, rejected, err)
		}
	}
	spans := got["resourceSpans"].([]any)[0].(map[string]any)["scopeSpans"].([]any)[0].(map[string]any)["spans"].([]any)
	first := spans[0].(map[string]any)
	if len(spans) != 11 || len(first["traceId"].(string)) != 32 || first["startTimeUnixNano"] != "1000000000" || first["parentSpanId"] != nil ||
		spans[1].(map[string]any)["parentSpanId"] != first["spanId"] || first["status"].(map[string]any)["code"] != 2.0 {
		t.Errorf("request: %v", got)
	}
	for code, final := range map[int]bool{400: true, 413: true, 404: false, 302: false, 500: false, 429: false, 503: false} {
		status, answer = code, ""
		if _, err := s.Send(context.Background(), Of("site", restarted())); err == nil || errors.Is(err, ErrRejected) != final {
			t.Errorf("status %d: %v", code, err)
		}
	}
}
