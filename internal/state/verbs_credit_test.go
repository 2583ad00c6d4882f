package state

import (
	"fmt"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// ofCredits carries out a line about credits.
func (x *script) ofCredits(verb string, w scriptLine) string {
	switch verb {
	case "credit":
		return x.credit(w)
	case "meter":
		return x.meter(w)
	case "charging":
		return x.charging(w)
	case "funded":
		return x.funded()
	}
	return x.showCredits()
}

// credit is "credit ACTOR ACTION [KEY=VALUE...]"; key is the key of the request, name that of the
// change.
func (x *script) credit(w scriptLine) string {
	actions := map[string]command.CreditAction{
		"grant": command.GrantCredits, "void": command.VoidBucket, "price": command.SetPrice, "budget": command.SetBudget,
		"refund": command.RefundJob, "correct": command.CorrectJob, "close": command.ClosePeriod,
	}
	classes := map[string]accounting.BucketClass{"promo": accounting.Promo, "grant": accounting.GrantClass, "": accounting.Purchase}
	windows := map[string]accounting.Window{"day": accounting.Daily, "month": accounting.Monthly}
	c := &command.ChangeCredits{
		Request: request16(w), Actor: actor(w.plain[0]), Action: actions[w.plain[1]], Account: w.keys["account"], User: w.keys["user"],
		Class: classes[w.keys["class"]], Priority: int32(w.number("priority", 0)), Cutoff: w.has("cutoff"),
		Scope:  accounting.BucketScope{GPUTypes: w.list("types"), Partitions: w.list("partitions")},
		Bucket: accounting.BucketID(w.number("bucket", 0)), GPUType: w.keys["type"], Hard: w.has("hard"), Window: windows[w.keys["window"]],
		Job: cluster.JobID(w.number("job", 0)), Attempt: cluster.Attempt(w.number("attempt", 0)), Period: w.keys["period"],
		Key: w.keys["name"], Note: w.keys["note"],
	}
	if text := w.keys["amount"]; text != "" {
		var err error
		if c.Amount, err = accounting.ParseCredits(text); err != nil {
			x.t.Fatal(err)
		}
	}
	if d := w.duration("expires"); d > 0 {
		c.Expires = cluster.Instant(d) + 1
	}
	if d := w.duration("effective"); d > 0 {
		c.Effective = cluster.Instant(d) + 1
	}
	return x.apply(c)
}

// meter is "meter JOB/ATTEMPT DURATION [epoch=N] [number=N] [segment=N]": how long its GPUs ran.
func (x *script) meter(w scriptLine) string {
	var s command.JobSample
	if _, err := fmt.Sscanf(w.plain[0], "%d/%d", &s.Job, &s.Attempt); err != nil {
		x.t.Fatal(err)
	}
	j, found := x.s.job(s.Job)
	if !found || j.Alloc == nil {
		return "no such run"
	}
	gpus := int64(0)
	for _, g := range x.s.granted(j) {
		gpus += g.Count
	}
	ran := split("d=" + w.plain[1]).duration("d")
	s.Epoch, s.Number, s.GPUms = uint64(w.number("epoch", 1)), uint64(w.number("number", 1)), accounting.Millis(gpus, ran)
	n, _ := x.s.credits.OpenLien(s.Job, s.Attempt)
	s.Segment = uint32(w.number("segment", int64(max(0, len(n.Segments)-1))))
	return x.apply(&command.MeterJobs{Samples: []command.JobSample{s}})
}

// charging is "charging ACTOR on|off [partitions=P] [window=D] [floating] [refund=D]".
func (x *script) charging(w scriptLine) string {
	p := *x.s.policy
	p.Credits = cluster.DefaultCreditPolicy()
	p.Credits.On, p.Credits.Partitions = w.has("on"), w.list("partitions")
	p.Credits.LienWindow, p.Credits.Floating = w.duration("window"), w.has("floating")
	if d := w.duration("refund"); d > 0 {
		p.Credits.FaultRefund = d
	}
	return x.apply(&command.ApplyPolicy{Actor: actor(w.plain[0]), Policy: p})
}

// funded prints until when the lien of each running job lasts.
func (x *script) funded() string {
	var out []string
	l := x.s.View().Credits()
	for n := range l.OpenLiens() {
		if len(n.Segments) > 0 {
			until := time.Duration(l.FundedUntil(n, cluster.Never)).Round(time.Millisecond)
			out = append(out, fmt.Sprintf("%s holds %s paid %s, enough until %s", n.ID, n.Holds(), n.Paid(), until))
		}
	}
	return strings.Join(out, "\n")
}

// showCredits prints accounts, buckets and liens.
func (x *script) showCredits() string {
	var out []string
	l := x.s.View().Credits()
	for id, n := range l.Payers() {
		out = append(out, fmt.Sprintf("%s held %s spent %s debt %s", id, n.Held, n.Spent, n.Debt))
	}
	for b := range l.Buckets() {
		out = append(out, fmt.Sprintf("bucket %d of %s: %s available %s held %s spent %s expired %s void", b.ID, b.Owner[0], b.Avail, b.Held, b.Spent, b.Expired, b.Void))
	}
	for n := range l.Liens() {
		line := fmt.Sprintf("lien %s %s: %s holds %s paid %s", n.ID, n.State, n.Amount, n.Holds(), n.Paid())
		for _, g := range n.Segments {
			for _, p := range g.Past {
				for _, x := range p.Shares {
					line += fmt.Sprintf(" %d %s at %s until %s", x.Count, x.Type, x.Price, time.Duration(p.Until).Round(time.Second))
				}
			}
			for _, x := range g.Shares() {
				line += fmt.Sprintf(" %d %s at %s", x.Count, x.Type, x.Price)
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// credited writes the answer to a change of credits.
func credited(r *command.Credited) string {
	text := "done"
	if r.Bucket > 0 {
		text += fmt.Sprintf(" bucket %d", r.Bucket)
	}
	for _, part := range []struct {
		what string
		c    accounting.Credits
	}{{"charged", r.Charged}, {"released", r.Released}, {"returned", r.Returned}, {"repaid", r.Repaid}, {"debt", r.Debt}} {
		if part.c != 0 {
			text += " " + part.what + " " + part.c.String()
		}
	}
	if r.Again {
		text += fmt.Sprintf(" again, by %s after %s", r.By, time.Duration(r.At).Round(time.Second))
	}
	return text
}
