package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/accounting"
)

// forecastJSON is what gsubmit --test-only --json prints.
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

// forecast prints when and where a job would start, and submits nothing. What would be
// refused is refused.
func (p submitCommand) forecast(ctx context.Context, c Cluster, spec *greylagv1.JobSpec, asJSON bool) error {
	a, err := c.Jobs().Forecast(ctx, &greylagv1.SubmitRequest{Jobs: []*greylagv1.JobSpec{spec}})
	if err != nil {
		return err
	}
	for _, w := range a.Warnings {
		p.Warn(w)
	}
	start := timeOf(a.Start)
	if asJSON {
		return p.WriteJSON(forecastJSON{Stamp(start), a.Now, a.Partition, a.Nodes, a.Reason, a.Detail, CreditsWord(a.SetAside), a.Warnings})
	}
	if a.SetAside > 0 {
		p.Note("%s credits would be set aside for it", accounting.Credits(a.SetAside).Short())
	}
	where := fmt.Sprintf("on %s in partition %s", Printable(hostlist.Compress(a.Nodes)), Printable(a.Partition))
	switch {
	case a.Now:
		_, err = fmt.Fprintf(p.Stdout, "it would start now %s\n", where)
	case !start.IsZero():
		_, err = fmt.Fprintf(p.Stdout, "it would start at %s %s\n", start.In(p.Now().Location()).Format(TimeLayout), where)
	default:
		_, err = fmt.Fprintf(p.Stdout, "it would wait, and no start can be told: %s\n", Printable(cmp.Or(a.Reason, "Priority")))
	}
	if err == nil && a.Detail != "" {
		_, err = fmt.Fprintf(p.Stdout, "  %s\n", Printable(a.Detail))
	}
	return err
}
