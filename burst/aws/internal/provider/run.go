package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/greylag/greylag/burst/aws/internal/settings"
	"github.com/greylag/greylag/internal/burst"
)

const (
	// maxQuestion bounds the question on standard input.
	maxQuestion = 4 << 20
	// answerTime is left before the deadline to write the answer.
	answerTime = 500 * time.Millisecond
)

// Run answers one call with the settings of a file: it reads the question, writes the answer and returns the exit
// status.
func Run(ctx context.Context, path, call string, in io.Reader, out, messages io.Writer) int {
	answer, failed := run(ctx, path, call, in, messages)
	if failed != nil {
		_, _ = fmt.Fprintf(messages, "%s: %s: %v\n", call, failed.Kind, failed)
		answer = &burst.Answer{Error: &burst.Failure{Kind: failed.Kind, Message: failed.Error()}}
	}
	if err := json.NewEncoder(out).Encode(answer); err != nil {
		_, _ = fmt.Fprintf(messages, "%s: the answer cannot be written: %v\n", call, err)
		return burst.ExitTryLater
	}
	if failed != nil {
		return failed.exitStatus()
	}
	return burst.ExitOK
}

func run(ctx context.Context, path, call string, in io.Reader, messages io.Writer) (*burst.Answer, *Error) {
	q, err := readQuestion(in)
	if err != nil {
		return nil, classify(err)
	}
	cfg, err := settings.Load(path)
	if err != nil {
		if call == burst.CallValidate {
			return &burst.Answer{Problems: []string{err.Error()}}, nil
		}
		return nil, failure(burst.FailureInvalid, "%w", err)
	}
	if !q.Deadline.IsZero() {
		var cancel func()
		ctx, cancel = context.WithDeadline(ctx, q.Deadline.Add(-answerTime))
		defer cancel()
	}
	answer, err := New(cfg, q.Cluster, messages).Answer(ctx, call, q)
	if err != nil {
		return nil, classify(err)
	}
	return answer, nil
}

// readQuestion reads a question. Unknown fields are those of later controllers.
func readQuestion(in io.Reader) (*burst.Question, error) {
	var q burst.Question
	if err := json.NewDecoder(io.LimitReader(in, maxQuestion)).Decode(&q); err != nil {
		return nil, failure(burst.FailureInvalid, "the question on standard input is not a JSON object of the contract: %w", err)
	}
	if q.Version != burst.Version {
		return nil, failure(burst.FailureInvalid, "version %d of the contract is not supported, only %d: install the programs of one release", q.Version, burst.Version)
	}
	if q.Cluster == "" {
		return nil, failure(burst.FailureInvalid, "the question has no cluster")
	}
	return &q, nil
}

// Answer carries out one call.
func (p *Provider) Answer(ctx context.Context, call string, q *burst.Question) (*burst.Answer, error) {
	a := &burst.Answer{}
	var err error
	switch call {
	case burst.CallOffers:
		a.Currency = currency
		a.Offers, err = p.offers(ctx)
	case burst.CallLaunch:
		if q.Launch == nil {
			return nil, failure(burst.FailureInvalid, "the question has no launch")
		}
		a.Instances, err = p.launch(ctx, q.Launch)
	case burst.CallList:
		a.Instances, err = p.list(ctx)
	case burst.CallTerminate:
		a.Instances, err = p.terminate(ctx, q.Instances)
	case burst.CallConsole:
		if len(q.Instances) != 1 {
			return nil, failure(burst.FailureInvalid, "the question names %d instances, not one", len(q.Instances))
		}
		a.Console, err = p.console(ctx, q.Instances[0])
	case burst.CallIdentify:
		if q.Identity == nil {
			return nil, failure(burst.FailureInvalid, "the question has no identity")
		}
		err = p.identify(ctx, q.Identity)
	case burst.CallValidate:
		a.Problems, err = p.validate(ctx)
	default:
		err = failure(burst.FailureInvalid, "unknown call %q", call)
	}
	return a, err
}
