package acct

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
)

// asOfJSON says what an answer is as of: a stable contract, as all of --json.
type asOfJSON struct {
	ui.AsOfJSON
	Finished uint64 `json:"finished"`
}

// pastJSON is a job as gqueue --json has it, and what its attempts came to.
type pastJSON struct {
	ui.JobJSON
	TRES     map[string]int64 `json:"tres,omitempty"`
	Attempts []attemptJSON    `json:"attempts,omitempty"`
}

type attemptJSON struct {
	Attempt   uint32           `json:"attempt"`
	Partition string           `json:"partition,omitempty"`
	Account   string           `json:"account,omitempty"`
	QOS       string           `json:"qos,omitempty"`
	Outcome   string           `json:"outcome"`
	Detail    string           `json:"detail,omitempty"`
	Started   *time.Time       `json:"started,omitempty"`
	Ended     *time.Time       `json:"ended,omitempty"`
	TRES      map[string]int64 `json:"tres,omitempty"`
	CPUTime   float64          `json:"cpu_time,omitempty"`  // seconds
	UserTime  float64          `json:"user_time,omitempty"` // of that
	ui.GPUUseJSON
	NodeList   string        `json:"node_list,omitempty"`
	ExitCode   int32         `json:"exit_code"`
	ExitSignal int32         `json:"exit_signal,omitempty"`
	Held       *heldTimeJSON `json:"held,omitempty"`
}

// heldTimeJSON is how long an attempt whose nodes changed had resources, in seconds.
type heldTimeJSON struct {
	Nodes float64 `json:"node_seconds"`
	CPUs  float64 `json:"cpu_seconds"`
	GPUs  float64 `json:"gpu_seconds"`
}

func writeHeld(h *greylagv1.HeldTime) *heldTimeJSON {
	if h == nil {
		return nil
	}
	return &heldTimeJSON{float64(h.NodeMs) / 1000, float64(h.CpuMs) / 1000, float64(h.GpuMs) / 1000}
}

func tresJSON(list []*greylagv1.ResourceCount) map[string]int64 {
	m := make(map[string]int64, len(list))
	for _, t := range list {
		m[t.Resource] = t.Count
	}
	return m
}

// head begins {"as_of":{...},"jobs":[...]}.
func (w *writer) head(m *greylagv1.StreamHistoryResponse) {
	w.print(`{"as_of":`)
	w.value(asOfJSON{ui.WriteAsOf(m.GetAsOf()), m.Finished})
	w.print(`,"jobs":[`)
}

// object prints one job.
func (w *writer) object(p *greylagv1.PastJob) {
	out := pastJSON{JobJSON: ui.JobOf(p.Job), TRES: tresJSON(p.Tres)}
	out.Charged = ui.CreditsWord(p.GetCharged())
	for _, a := range p.Attempts {
		out.Attempts = append(out.Attempts, attemptJSON{
			a.Attempt, a.Partition, a.Account, a.Qos, wire.Word(a.Outcome), a.Detail, ui.Stamp(timeOf(a.Started)), ui.Stamp(timeOf(a.Ended)), tresJSON(a.Tres), a.CpuTime.AsDuration().Seconds(), a.UserTime.AsDuration().Seconds(),
			ui.WriteGPUUse(a.GpuBusyMs, a.GpuKnownMs, a.GpuMemoryPeakBytes), a.Nodes, a.ExitCode, a.ExitSignal, writeHeld(a.Held),
		})
	}
	if w.lines++; w.lines > 1 {
		w.print(",")
	}
	w.print("\n")
	w.value(out)
}

// value prints a value in one line.
func (w *writer) value(v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil && w.err == nil {
		w.err = err
	}
	w.print(strings.TrimSuffix(b.String(), "\n"))
}
