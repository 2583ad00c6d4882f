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
	return fmt.Sprintf("%d of %d, after %s", r.Used, r.Limit, r.On)
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
