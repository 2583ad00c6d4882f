package ui

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/jobscript"
)

// Finish prints the error, if there is one, and returns the exit status.
func (p *Process) Finish(ctx context.Context, err error) int {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return int(StatusOf(err))
	}
	if IsInterrupted(ctx) {
		return int(Interrupted)
	}
	p.Report(err)
	return int(StatusOf(err))
}

// Report prints an error, one line for each of several, with its hint.
func (p *Process) Report(err error) {
	var faults jobscript.Faults
	if errors.As(err, &faults) {
		for _, fault := range faults {
			p.complain("error", fault.Error())
			p.complain("hint", fault.Hint())
		}
		return
	}
	message, advice := explain(err)
	for _, line := range strings.Split(message, "\n") {
		p.complain("error", line)
	}
	p.complain("hint", advice)
}

// explain splits an error into the problem and the hint.
func explain(err error) (message, advice string) {
	var answer *connect.Error
	advice = hint.Of(err)
	if errors.As(err, &answer) {
		message = answer.Message()
		if given := answer.Meta().Get(client.HintHeader); given != "" {
			advice = given
		}
		if advice == "" && answer.Code() == connect.CodeUnavailable {
			advice = "check the controllers: gctl cluster status"
		}
		return message, advice
	}
	return strings.TrimPrefix(err.Error(), errConfig.Error()+"\n"), advice
}

// Unanswered adds a hint to the error of a call that no controller answered; others are returned
// unchanged.
func Unanswered(err error, advice string) error {
	var answer *connect.Error
	if StatusOf(err) == Unavailable && errors.As(err, &answer) {
		answer.Meta().Set(client.HintHeader, advice)
	}
	return err
}

// complain prints one line on standard error, unless it is empty.
func (p *Process) complain(kind, text string) {
	if text != "" {
		fmt.Fprintf(p.Stderr, "%s: %s: %s\n", p.Program, kind, Printable(text))
	}
}

// Complain prints an error with its hint.
func (p *Process) Complain(problem, advice string) {
	p.complain("error", problem)
	p.complain("hint", advice)
}

// TellStale warns of an answer that no leader confirmed, with its source and time.
func (p *Process) TellStale(a *greylagv1.AsOf) {
	if a.GetStale() {
		at := TimeOf(a.GetTime()).In(p.Now().Location()).Format(TimeLayout)
		p.Warn(fmt.Sprintf("stale data: state of controller %s at %s", a.GetController(), at))
	}
}

// Warn prints a warning.
func (p *Process) Warn(text string) { p.complain("warning", text) }

// Note prints additional information.
func (p *Process) Note(format string, args ...any) { p.complain("note", fmt.Sprintf(format, args...)) }
