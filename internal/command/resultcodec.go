package command

import (
	"fmt"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/accounting"
)

// Kinds of result, as remembered for repeated requests.
const (
	resultRefusal kind = iota + 1
	resultDone
	resultSubmitted
	resultOutcomes
	resultNamed
	resultStepCreated
	resultCheckpointCommitted
)

// EncodeResult writes an answer that a repeated request may get again: those of
// commands with a [RequestID]. Other results, and nil, give nil.
func EncodeResult(r Result) []byte {
	k := resultKind(r)
	if k == 0 {
		return nil
	}
	w := codec.Writer(make([]byte, 0, 32))
	head(&w, &k)
	resultFields(&w, r)
	return w.Written()
}

// DecodeResult reads what EncodeResult wrote, under the promises of [Decode].
func DecodeResult(data []byte) (Result, error) {
	r := codec.Reader(data)
	var k kind
	if err := head(&r, &k); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	result := blankResult(k)
	if result == nil {
		return nil, fmt.Errorf("result: %w: kind %d", ErrUnsupported, k)
	}
	resultFields(&r, result)
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("result: %w: %w", ErrMalformed, err)
	}
	return result, nil
}

func resultKind(r Result) kind {
	switch r.(type) {
	case *Refusal:
		return resultRefusal
	case *Done:
		return resultDone
	case *Submitted:
		return resultSubmitted
	case *Outcomes:
		return resultOutcomes
	case *Named:
		return resultNamed
	case *StepCreated:
		return resultStepCreated
	case *CheckpointCommitted:
		return resultCheckpointCommitted
	}
	return 0
}

func blankResult(k kind) Result {
	switch k {
	case resultRefusal:
		return new(Refusal)
	case resultDone:
		return new(Done)
	case resultSubmitted:
		return new(Submitted)
	case resultOutcomes:
		return new(Outcomes)
	case resultNamed:
		return new(Named)
	case resultStepCreated:
		return new(StepCreated)
	case resultCheckpointCommitted:
		return new(CheckpointCommitted)
	}
	return nil
}

func resultFields(c *codec.Coder, r Result) {
	switch x := r.(type) {
	case *Refusal:
		codec.Record(c, x, refusalFields)
	case *Done:
		codec.Record(c, x, doneFields)
	case *Submitted:
		codec.Record(c, x, submittedFields)
	case *Outcomes:
		codec.Record(c, x, outcomesFields)
	case *Named:
		codec.Record(c, x, namedFields)
	case *StepCreated:
		codec.Record(c, x, stepCreatedFields)
	case *CheckpointCommitted:
		codec.Record(c, x, checkpointCommittedFields)
	}
}

func refusalFields(c *codec.Coder, x *Refusal) {
	codec.Uint(c, &x.Code)
	codec.String(c, &x.Message)
	codec.String(c, &x.Hint)
}

func doneFields(c *codec.Coder, x *Done) {
	codec.Uint(c, &x.Version)
	codec.List(c, &x.Notes, codec.String)
}

// Again is not remembered: the repetition adds it.

func submittedFields(c *codec.Coder, x *Submitted) {
	codec.List(c, &x.First, codec.Uint)
	codec.List(c, &x.Counts, codec.Int)
	codec.Uint(c, &x.Index)
	codec.Int(c, &x.SetAside)
	codec.List(c, &x.Over, warningFields)
}

func warningFields(c *codec.Coder, x *accounting.Warning) {
	node := string(x.Node)
	codec.String(c, &node)
	x.Node = accounting.PayerID(node)
	codec.Int(c, &x.Used)
	codec.Int(c, &x.Limit)
}

func outcomesFields(c *codec.Coder, x *Outcomes) {
	codec.List(c, &x.Jobs, outcome)
	codec.Uint(c, &x.Index)
}

func outcome(c *codec.Coder, x *Outcome) { codec.Record(c, x, outcomeFields) }

func outcomeFields(c *codec.Coder, x *Outcome) {
	codec.Uint(c, &x.Job)
	refFields(c, &x.Ref)
	codec.Uint(c, &x.State)
	codec.Optional(c, &x.Refused, refusalFields)
}

func namedFields(c *codec.Coder, x *Named) {
	codec.List(c, &x.Names, codec.String)
	codec.Uint(c, &x.Index)
}

// Busy is not remembered: then nothing was created.

func stepCreatedFields(c *codec.Coder, x *StepCreated) {
	codec.Uint(c, &x.Step)
	codec.Uint(c, &x.Attempt)
}
