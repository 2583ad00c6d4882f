package gsubmit

import (
	"context"
	"fmt"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// quoteJSON is the output of gsubmit --quote --json.
type quoteJSON struct {
	Amount  string      `json:"amount"`
	AtLimit string      `json:"at_limit,omitempty"`
	Ahead   *int64      `json:"ahead_seconds,omitempty"`
	Usable  string      `json:"usable"`
	Account string      `json:"account,omitempty"`
	User    string      `json:"user,omitempty"`
	Rates   []priceJSON `json:"rates"`
	Free    bool        `json:"free"`
	Floats  bool        `json:"floating"`
	PaidIn  []string    `json:"paid_in,omitempty"`
	Refusal string      `json:"refusal,omitempty"`
	Hint    string      `json:"hint,omitempty"`
	Warns   []string    `json:"warnings,omitempty"`
}

type priceJSON struct {
	GPUType string `json:"gpu_type"`
	Price   string `json:"price"`
}

// quote prints a job's lien, and submits nothing. The status is that of a refusal if the job would
// be refused.
func (p command) quote(ctx context.Context, c ui.Cluster, spec *greylagv1.JobSpec, asJSON bool) error {
	a, err := c.Credits().QuoteJobs(ctx, &greylagv1.QuoteJobsRequest{Jobs: []*greylagv1.JobSpec{spec}})
	if err != nil {
		return err
	}
	if asJSON {
		out := quoteJSON{
			Amount: accounting.Credits(a.Lien).String(), Usable: accounting.Credits(a.Usable).String(), Account: a.Account, User: a.User,
			Rates: []priceJSON{}, Free: a.Free, Floats: a.Floating, PaidIn: a.PaidIn, Refusal: a.Refusal, Hint: a.Hint,
			Ahead: ui.Seconds(a.LienWindow), Warns: a.Warnings,
		}
		if a.AtLimit > 0 {
			out.AtLimit = accounting.Credits(a.AtLimit).String()
		}
		for _, r := range a.Rates {
			out.Rates = append(out.Rates, priceJSON{r.GpuType, accounting.Credits(r.Price).String()})
		}
		err = p.WriteJSON(out)
	} else {
		for _, w := range a.Warnings {
			p.Warn(w)
		}
		err = p.printQuote(a)
	}
	if err == nil && a.Refusal != "" {
		return ui.Exit(ui.Failed)
	}
	return err
}

func (p command) printQuote(a *greylagv1.QuoteJobsResponse) error {
	switch {
	case a.Free:
		_, err := fmt.Fprintln(p.Stdout, "no charge")
		return err
	case a.Account != "":
		if err := p.printBound(a); err != nil {
			return err
		}
		for _, r := range a.Rates {
			if _, err := fmt.Fprintf(p.Stdout, "  %s per hour of a GPU of type %s\n", accounting.Credits(r.Price).Short(), r.GpuType); err != nil {
				return err
			}
		}
		if a.Floating {
			if _, err := fmt.Fprintln(p.Stdout, "  each hour is charged at the price in force then; gctl credit price lists prices"); err != nil {
				return err
			}
		}
		if len(a.PaidIn) > 0 {
			if _, err := fmt.Fprintf(p.Stdout, "  it would start only in partition %s: no credits cover the others\n", strings.Join(a.PaidIn, ", ")); err != nil {
				return err
			}
		}
	}
	if a.Refusal != "" {
		p.Complain("the job would be refused: "+a.Refusal, a.Hint)
	}
	return nil
}

// printBound prints the highest cost, and the part that is reserved at submission.
func (p command) printBound(a *greylagv1.QuoteJobsResponse) error {
	bound := "at most"
	if a.Floating {
		bound = "at current prices"
	}
	now, has := accounting.Credits(a.Lien).Short(), fmt.Sprintf("of the %s that account %s has for %s", accounting.Credits(a.Usable).Short(), a.Account, a.User)
	ahead := cluster.FormatLimit(a.LienWindow.AsDuration())
	if a.LienWindow == nil {
		_, err := fmt.Fprintf(p.Stdout, "%s credits %s, %s\n", now, bound, has)
		return err
	}
	whole := "no time limit: "
	if a.AtLimit > 0 {
		whole = fmt.Sprintf("%s credits %s at its time limit: ", accounting.Credits(a.AtLimit).Short(), bound)
	}
	_, err := fmt.Fprintf(p.Stdout, "%s credits for %s ahead, %s\n  %sthe lien is extended while it runs\n", now, ahead, has, whole)
	return err
}
