package cli

import (
	"fmt"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// OutcomeStyle says how the outcomes of a change to jobs are told.
type OutcomeStyle struct {
	JSON    bool
	Verbose bool   // name what was done, not only what failed
	Quiet   bool   // say nothing of jobs for which it was too late
	Verb    string // what was done, such as "ended"
	// EndedIsDone takes a job that had ended already for no failure: it is where
	// the change would have brought it, and is only warned of, as by scancel.
	EndedIsDone bool
}

// outcomeJSON is what became of one job, in the output of --json.
type outcomeJSON struct {
	Ref   string `json:"ref"`
	ID    uint64 `json:"id,omitempty"`
	State string `json:"state,omitempty"`
	Error string `json:"error,omitempty"`
	Code  string `json:"code,omitempty"`
	Note  string `json:"note,omitempty"`
}

// tooLate is the code of a change to a job that had ended already.
const tooLate = "failed_precondition"

// Outcomes tells what a change did to each job. The error carries the exit
// status: that of the failures if they agree, else Failed.
func (p *Process) Outcomes(outcomes []*greylagv1.Outcome, style OutcomeStyle) error {
	all := []outcomeJSON{} // [] in JSON, not null
	status := OK
	for _, o := range outcomes {
		all = append(all, outcomeJSON{o.Ref, o.Id, o.State, o.Error, o.Code, o.Note})
		if o.Error == "" {
			if style.Verbose {
				p.Note("job %s %s", o.Ref, style.Verb)
			}
			if o.Note != "" && !style.JSON {
				p.Warn(fmt.Sprintf("job %s: %s", o.Ref, o.Note))
			}
			continue
		}
		if style.Quiet && o.Code == tooLate {
			continue
		}
		text := o.Error
		if !strings.HasPrefix(text, "job "+o.Ref+" ") { // else it names the job itself
			text = "job " + o.Ref + ": " + text
		}
		done := style.EndedIsDone && hadEnded(o)
		switch {
		case style.JSON:
		case done:
			p.Warn(text)
		default:
			p.complain("error", text)
		}
		if done {
			continue
		}
		if s := statusOfCode(o.Code); status == OK || status == s {
			status = s
		} else {
			status = Failed
		}
	}
	if style.JSON {
		if err := p.WriteJSON(struct {
			Outcomes []outcomeJSON `json:"outcomes"`
		}{all}); err != nil {
			return err
		}
	}
	return Exit(status)
}

// hadEnded reports that a change came too late, not that it was wrong.
func hadEnded(o *greylagv1.Outcome) bool {
	state, err := cluster.ParseJobState(o.State)
	return o.Code == tooLate && err == nil && state.Final()
}
