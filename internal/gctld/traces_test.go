package gctld

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/archive"
	commands "github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/spans"
	"github.com/greylag/greylag/pkg/cluster"
)

// collector counts the spans of each trace that it accepted. It answers 503 to the first requests.
type collector struct {
	mu       sync.Mutex
	refuse   int
	accepted map[string]int
	changed  chan struct{}
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse > 0 {
		c.refuse--
		http.Error(w, "later", http.StatusServiceUnavailable)
		return
	}
	var request struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct{ TraceID string }
			}
		}
	}
	body, err := io.ReadAll(r.Body)
	if err = errors.Join(err, json.Unmarshal(body, &request)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, s := range request.ResourceSpans[0].ScopeSpans[0].Spans {
		c.accepted[s.TraceID]++
	}
	c.changed <- struct{}{}
}

// archived archives the record of a job that was cancelled while it waited.
func archived(t *testing.T, a *archive.Archive, seq uint64, ended time.Time) {
	t.Helper()
	at := cluster.Instant(ended.UnixNano())
	j := &cluster.Job{
		ID: cluster.JobID(seq), Index: cluster.NoIndex, State: cluster.Cancelled, Submitted: at - 1, Ended: at,
		Spec: &cluster.JobSpec{Name: "train", Owner: cluster.Identity{User: "alice"}, Partition: "main"},
	}
	must(t, a.Append(seq, []archive.Record{{Seq: seq, ID: j.ID, State: j.State, Submitted: j.Submitted, Ended: at, Data: commands.EncodeJob(j)}}, nil))
}

// TestTraces sends the jobs of the last hour although the collector is away at first, then a job that
// ends during the term, and nothing after the term.
func TestTraces(t *testing.T) {
	a, err := archive.Open(t.TempDir(), archive.Options{})
	must(t, err)
	defer a.Close()
	now := time.Now()
	archived(t, a, 1, now.Add(-2*time.Hour))
	archived(t, a, 2, now.Add(-time.Minute))
	c := &collector{refuse: 2, accepted: map[string]int{}, changed: make(chan struct{}, 10)}
	server := httptest.NewServer(c)
	defer server.Close()
	accepted := 0
	tr := &traces{
		archive: a, clusterID: "site", percent: 100, clock: func() time.Time { return now }, log: slog.New(slog.DiscardHandler),
		sender: spans.NewSender(server.URL, "site", "0.1.0"),
		count:  func(n, _ int) { accepted += n },
	}
	term, end := context.WithCancel(t.Context())
	tick, done := make(chan time.Time), make(chan struct{})
	go func() { tr.follow(t.Context(), term, tick); close(done) }()
	tick <- now
	tick <- now
	<-c.changed
	archived(t, a, 3, now)
	tick <- now
	<-c.changed
	end()
	<-done
	for id, want := range []int{0, 0, 2, 2} {
		trace := spans.TraceOf("site", cluster.JobID(id))
		if got := c.accepted[hex.EncodeToString(trace[:])]; got != want {
			t.Errorf("job %d has %d spans, want %d", id, got, want)
		}
	}
	if accepted != 4 {
		t.Errorf("%d spans are counted", accepted)
	}
}
