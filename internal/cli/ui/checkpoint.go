package ui

import (
	"encoding/hex"
	"fmt"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// SizeText formats a size for people, to a tenth of the unit.
func SizeText(b cluster.Bytes) string {
	switch {
	case b < cluster.MiB:
		return fmt.Sprintf("%d bytes", b)
	case b < cluster.GiB:
		return fmt.Sprintf("%.1f MiB", float64(b)/float64(cluster.MiB))
	}
	return fmt.Sprintf("%.1f GiB", float64(b)/float64(cluster.GiB))
}

// CheckpointJSON is one checkpoint in the output of --json.
type CheckpointJSON struct {
	Number    uint32     `json:"number"`
	Attempt   uint32     `json:"attempt"`
	Step      *int64     `json:"step,omitempty"`
	State     string     `json:"state"`
	Committed *time.Time `json:"committed,omitempty"`
	Verified  *time.Time `json:"verified,omitempty"`
	Files     int64      `json:"files"`
	Bytes     int64      `json:"bytes"`
	Dir       string     `json:"dir"`
	Digest    string     `json:"digest"`
	Detail    string     `json:"detail,omitempty"`
}

// Checkpoints returns the checkpoints of a job in the form of --json.
func Checkpoints(j *greylagv1.Job) (list []CheckpointJSON) {
	for _, k := range j.Checkpoints {
		list = append(list, CheckpointJSON{
			k.Number, k.Attempt, k.Step, wire.Word(k.State), Stamp(TimeOf(k.Committed)), Stamp(TimeOf(k.Verified)),
			k.Files, k.Bytes, k.Dir, hex.EncodeToString(k.Digest), k.Detail,
		})
	}
	return list
}

// RetryText describes the retries of a job; "" if there are none.
func RetryText(j *greylagv1.Job) string {
	r := writeRetry(j)
	if r == nil {
		return ""
	}
	text := fmt.Sprintf("%d of %d", r.Used, r.Limit)
	if all := j.RestartCauses.GetRetried(); all > r.Used {
		text = fmt.Sprintf("%d so far, %s since the last progress", all, text)
	}
	return text + ", after " + r.On
}

// retryJSON is the retries of a job in JSON.
type retryJSON struct {
	Limit int32  `json:"limit"`
	On    string `json:"on"`
	Used  int32  `json:"used"`
}

// writeRetry converts the retries of a job to the form of --json; nil if there are none.
func writeRetry(j *greylagv1.Job) *retryJSON {
	if j.Retry.GetLimit() == 0 {
		return nil
	}
	r := cluster.Retry{AnyExit: j.Retry.AnyExit, ExitStatuses: j.Retry.ExitStatuses, OutOfMemory: j.Retry.OutOfMemory}
	return &retryJSON{j.Retry.Limit, r.Causes(), j.Retries}
}

// signalJSON is when a job is asked for checkpoints, in JSON. Times are in seconds.
type signalJSON struct {
	Number    int32   `json:"number"`
	Before    float64 `json:"before"`
	Every     float64 `json:"every,omitempty"`
	BatchOnly bool    `json:"batch_only,omitempty"`
}

func writeSignal(s *greylagv1.CheckpointSignal) *signalJSON {
	if s == nil {
		return nil
	}
	return &signalJSON{s.Number, s.Before.AsDuration().Seconds(), s.Every.AsDuration().Seconds(), s.BatchOnly}
}

// SignalWords returns a signal by number and name.
func SignalWords(number int32) string {
	text := fmt.Sprintf("signal %d", number)
	if name := cluster.SignalName(number); name != text {
		text += " (" + name + ")"
	}
	return text
}

// SignalText describes when a job is asked for checkpoints, and how long it takes to write them; "" if it is not.
func SignalText(j *greylagv1.Job) string {
	s := j.CheckpointSignal
	if s == nil {
		return ""
	}
	lead := cluster.WarnSignal{Before: s.Before.AsDuration()}.Lead(j.TimeLimit.AsDuration())
	text := fmt.Sprintf("%s %s before the time limit", cluster.SignalName(s.Number), cluster.FormatElapsed(lead))
	if s.Every != nil {
		text += ", and every " + cluster.FormatElapsed(s.Every.AsDuration())
	}
	if j.CheckpointWriteTime != nil {
		text += "; last checkpoint took " + cluster.FormatElapsed(j.CheckpointWriteTime.AsDuration())
	}
	return text
}

// restartMode returns what happens to a job when all its checkpoints are damaged; "" for a job without a
// checkpoint directory.
func restartMode(j *greylagv1.Job) string {
	switch {
	case j.FromScratch:
		return "scratch"
	case j.CheckpointDir != "":
		return "hold"
	}
	return ""
}

// avoidedJSON is a node that a job avoids in JSON.
type avoidedJSON struct {
	Node    string     `json:"node"`
	Until   *time.Time `json:"until"`
	Attempt uint32     `json:"attempt"`
}

func writeAvoided(j *greylagv1.Job) (list []avoidedJSON) {
	for _, a := range j.AvoidedNodes {
		list = append(list, avoidedJSON{a.Node, Stamp(TimeOf(a.Until)), a.Attempt})
	}
	return list
}

// lastAttemptJSON is how the attempt before the current or next one ended, in JSON.
type lastAttemptJSON struct {
	Attempt uint32     `json:"attempt"`
	Outcome string     `json:"outcome"`
	Ended   *time.Time `json:"ended"`
	Detail  string     `json:"detail,omitempty"`
	Nodes   string     `json:"node_list,omitempty"`
	Exit    int32      `json:"exit_code"`
	Signal  int32      `json:"exit_signal,omitempty"`
}

func writeLastAttempt(j *greylagv1.Job) *lastAttemptJSON {
	a := j.LastAttempt
	if a == nil {
		return nil
	}
	return &lastAttemptJSON{a.Attempt, wire.Word(a.Outcome), Stamp(TimeOf(a.Ended)), a.Detail, a.Nodes, a.ExitCode, a.ExitSignal}
}
