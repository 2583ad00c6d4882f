package gsubmit

import (
	"cmp"
	"context"
	"fmt"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
)

// forecastJSON is the output of gsubmit --test-only --json.
type forecastJSON struct {
	Start     *time.Time `json:"start,omitempty"`
	Now       bool       `json:"now"`
	Partition string     `json:"partition,omitempty"`
	Nodes     []string   `json:"nodes,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	Detail    string     `json:"detail,omitempty"`
	SetAside  string     `json:"set_aside,omitempty"` // credits
	Warnings  []string   `json:"warnings,omitempty"`
}

// forecast prints when and where a job would start, and submits nothing. It refuses what a
// submission would refuse.
func (p command) forecast(ctx context.Context, c ui.Cluster, spec *greylagv1.JobSpec, asJSON bool) error {
	a, err := c.Jobs().ForecastJob(ctx, &greylagv1.ForecastJobRequest{Job: spec})
	if err != nil {
		return err
	}
	for _, w := range a.Warnings {
		p.Warn(w)
	}
	start := ui.TimeOf(a.Start)
	if asJSON {
		return p.WriteJSON(forecastJSON{ui.Stamp(start), a.Now, a.Partition, a.Nodes, wire.Word(a.Reason), a.Detail, ui.CreditsWord(a.Lien), a.Warnings})
	}
	if a.Lien > 0 {
		p.Note("its lien would be %s credits", accounting.Credits(a.Lien).Short())
	}
	where := fmt.Sprintf("on %s%s in partition %s", atLeast(spec), ui.Printable(hostlist.Compress(a.Nodes)), ui.Printable(a.Partition))
	switch {
	case a.Now:
		_, err = fmt.Fprintf(p.Stdout, "the job would start now %s\n", where)
	case !start.IsZero():
		_, err = fmt.Fprintf(p.Stdout, "the job would start at %s %s\n", start.In(p.Now().Location()).Format(ui.TimeLayout), where)
	default:
		_, err = fmt.Fprintf(p.Stdout, "the job would have no planned start: %s\n", ui.Printable(cmp.Or(wire.Word(a.Reason), "Priority")))
	}
	if err == nil && spec.Elastic != nil && !start.IsZero() {
		_, err = fmt.Fprintf(p.Stdout, "  elastic: it starts with up to %d nodes if they are idle and not planned for other jobs\n", spec.Request.GetMaxNodes())
	}
	if err == nil && a.Detail != "" {
		_, err = fmt.Fprintf(p.Stdout, "  %s\n", ui.Printable(a.Detail))
	}
	return err
}

// atLeast returns "at least " for an elastic job, which may start with more than the planned nodes.
func atLeast(spec *greylagv1.JobSpec) string {
	if spec.Elastic != nil {
		return "at least "
	}
	return ""
}
