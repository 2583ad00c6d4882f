// Package spans derives the trace of a finished job from its record, and sends traces by OTLP over HTTP.
//
// A job is one trace. Its identifiers follow from the cluster, the job and the attempt, so a trace that
// is sent twice has the same identifiers. A span exists only once it has ended: none is open while a job
// runs for days, and a controller that fails loses none that the next leader cannot derive again. The
// package reads only records, and decides nothing about jobs.
package spans

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/greylag/greylag/pkg/cluster"
)

// TraceID identifies the trace of a job.
type TraceID [16]byte

// SpanID identifies one span of a trace.
type SpanID [8]byte

// Span is one finished span.
type Span struct {
	Trace      TraceID
	ID         SpanID
	Parent     SpanID // zero: the root
	Name       string
	From, To   cluster.Instant
	Attributes []Attribute
	Events     []Event
	Failed     string // why it failed; "" if it did not
}

// Attribute is a property of a span: a string or an int64.
type Attribute struct {
	Key   string
	Value any
}

// Event is something that happened at an instant of a span.
type Event struct {
	At         cluster.Instant
	Name       string
	Attributes []Attribute
}

// TraceOf returns the trace of a job.
func TraceOf(clusterID string, job cluster.JobID) TraceID {
	sum := sha256.Sum256(fmt.Appendf(nil, "greylag trace 1\x00%s\x00%d", clusterID, job))
	return TraceID(sum[:16])
}

// Sampled reports whether the trace is among a share of all traces: the same ones on every controller.
func (t TraceID) Sampled(percent int) bool {
	return int(binary.BigEndian.Uint64(t[:8])%100) < percent
}

func (t TraceID) span(attempt cluster.Attempt, name, node string) SpanID {
	sum := sha256.Sum256(fmt.Appendf(t[:], "%d\x00%s\x00%s", attempt, name, node))
	return SpanID(sum[:8])
}

// job collects the spans of one job.
type job struct {
	*cluster.Job
	trace TraceID
	root  SpanID
	spans []Span
}

// Of returns the spans of a finished job: the root first, then for each attempt how long the job waited
// for it and how long it ran, and for each node of the last attempt its preparation and its run.
// O(attempts + nodes + notes).
func Of(clusterID string, record *cluster.Job) []Span {
	j := &job{Job: record, trace: TraceOf(clusterID, record.ID)}
	j.root = j.trace.span(0, "job", "")
	settled := j.Ended
	if j.Tasks != nil {
		for _, t := range j.Tasks.All() {
			settled = max(settled, t.Ended)
		}
	}
	j.add(SpanID{}, 0, "job", "", j.Submitted, settled, append(j.common(),
		Attribute{"greylag.job.name", j.Spec.Name}, Attribute{"greylag.outcome", j.State.String()},
		Attribute{"greylag.restarts", int64(j.Restarts)}, Attribute{"greylag.charged_microcredits", j.Charged}), failure(j.State))
	waits := j.Submitted
	for i := range j.Attempts {
		a := &j.Attempts[i]
		j.wait(a.Attempt, waits, a.Started)
		j.attempt(a.Attempt, a.Started, a.Ended, a.Outcome, a.TRES)
		waits = a.Ended
	}
	if j.Started == 0 || j.Started < waits {
		j.wait(j.Attempt+1, waits, j.Ended)
		return j.spans
	}
	j.wait(j.Attempt, waits, j.Started)
	parent := j.attempt(j.Attempt, j.Started, settled, j.State, j.TRES)
	j.nodes(parent)
	if settled > j.Ended {
		j.add(parent, j.Attempt, "complete", "", j.Ended, settled, nil, "")
	}
	return j.spans
}

// add appends a span and returns its identifier.
func (j *job) add(parent SpanID, attempt cluster.Attempt, name, node string, from, to cluster.Instant, attributes []Attribute, failed string) SpanID {
	id := j.trace.span(attempt, name, node)
	j.spans = append(j.spans, Span{Trace: j.trace, ID: id, Parent: parent, Name: name, From: from, To: max(from, to), Attributes: attributes, Failed: failed})
	return id
}

// common returns the attributes by which traces are searched.
func (j *job) common() []Attribute {
	list := []Attribute{
		{"greylag.job.id", strconv.FormatUint(uint64(j.ID), 10)}, {"greylag.user", j.Spec.Owner.User}, {"greylag.account", j.Spec.Account},
		{"greylag.partition", j.PartitionList()}, {"greylag.qos", j.Spec.QOS},
	}
	if j.Array != 0 {
		list = append(list, Attribute{"greylag.array.id", strconv.FormatUint(uint64(j.Array), 10)}, Attribute{"greylag.array.index", int64(j.Index)})
	}
	return list
}

// wait adds how long the job waited for an attempt: until it was eligible, and from then on in the queue.
func (j *job) wait(attempt cluster.Attempt, from, to cluster.Instant) {
	if j.Eligible > from && j.Eligible <= to {
		j.add(j.root, attempt, "ineligible", "", from, j.Eligible, j.common(), "")
		from = j.Eligible
	}
	j.add(j.root, attempt, "queue", "", from, to, j.common(), "")
	last := &j.spans[len(j.spans)-1]
	for i := range j.History {
		if n := &j.History[i]; n.At >= from && n.At <= to {
			last.Events = append(last.Events, event(n))
		}
	}
}

// event is a scheduling note of the job.
func event(n *cluster.Note) Event {
	e := Event{At: n.At, Name: "pending", Attributes: []Attribute{{"greylag.reason", n.Reason.String()}}}
	switch {
	case n.Broken != "":
		e.Name = "promise broken"
		e.Attributes = append(e.Attributes, Attribute{"greylag.cause", n.Broken})
	case n.Promised:
		e.Name = "promised"
	case n.Planned != 0:
		e.Name = "planned"
	}
	if n.Planned != 0 {
		e.Attributes = append(e.Attributes, Attribute{"greylag.planned", n.Planned.Time().UTC().Format("2006-01-02T15:04:05Z")})
	}
	return e
}

// attempt adds one run of the job.
func (j *job) attempt(attempt cluster.Attempt, from, to cluster.Instant, outcome cluster.JobState, tres []cluster.Amount) SpanID {
	list := append(j.common(), Attribute{"greylag.attempt", int64(attempt)}, Attribute{"greylag.outcome", outcome.String()})
	for _, a := range tres {
		list = append(list, Attribute{"greylag.tres." + a.Resource, a.Count})
	}
	return j.add(j.root, attempt, "attempt", "", from, to, list, failure(outcome))
}

// nodes adds, for each node of the last attempt, the time before its task started and the task's run.
func (j *job) nodes(parent SpanID) {
	if j.Tasks == nil {
		return
	}
	for _, t := range j.Tasks.All() {
		host := Attribute{"host.name", t.Node}
		if t.Started == 0 {
			if t.Cause != cluster.NoCause {
				j.add(parent, j.Attempt, "configure", t.Node, j.Started, t.Ended, []Attribute{host}, t.Cause.String())
			}
			continue
		}
		j.add(parent, j.Attempt, "configure", t.Node, j.Started, t.Started, []Attribute{host}, "")
		list := []Attribute{
			host, {"greylag.exit_code", int64(t.Exit.Code)}, {"greylag.exit_signal", int64(t.Exit.Signal)},
			{"greylag.cause", t.Cause.String()}, {"greylag.cpu_ms", t.CPUTime.Milliseconds()}, {"greylag.memory_peak_bytes", int64(t.Memory)},
		}
		if t.GPU.Known() {
			list = append(list, Attribute{"greylag.gpu_busy_ms", t.GPU.BusyMs}, Attribute{"greylag.gpu_sampled_ms", t.GPU.KnownMs})
		}
		failed := ""
		if !t.Exit.OK() {
			failed = t.Cause.String()
		}
		j.add(parent, j.Attempt, "run", t.Node, t.Started, t.Ended, list, failed)
	}
}

// failure is the outcome of a job as the reason of a failed span; "" if it completed.
func failure(outcome cluster.JobState) string {
	if outcome == cluster.Completed {
		return ""
	}
	return outcome.String()
}
