package wire

import (
	"cmp"
	"slices"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/internal/state/credits"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

var creditClasses = map[string]accounting.BucketClass{ // never written
	"": accounting.GrantClass, "grant": accounting.GrantClass, "purchase": accounting.Purchase, "promo": accounting.Promo,
}

var budgetWindows = map[string]accounting.Window{"": accounting.Ever, "day": accounting.Daily, "month": accounting.Monthly} // never written

// ClassWord returns the word for a class of buckets.
func ClassWord(c accounting.BucketClass) string {
	switch c {
	case accounting.Promo:
		return "promo"
	case accounting.GrantClass:
		return "grant"
	case accounting.RefundClass:
		return "refund"
	case accounting.Purchase:
		return "purchase"
	}
	return "unknown"
}

// WindowWord returns the word for a budget's window; "" when it has none.
func WindowWord(w accounting.Window) string {
	switch w {
	case accounting.Daily:
		return "day"
	case accounting.Monthly:
		return "month"
	}
	return ""
}

// ReadCreditChange reads a change of credits, without the job of a refund or a correction, which
// the caller resolves. The errors are refusals.
func ReadCreditChange(p *greylagv1.ChangeCreditsRequest) (*command.ChangeCredits, error) {
	c := &command.ChangeCredits{Key: p.GetKey(), Note: p.GetNote()}
	var err error
	switch x := p.GetChange().(type) {
	case *greylagv1.ChangeCreditsRequest_Grant:
		err = readGrant(c, x.Grant)
	case *greylagv1.ChangeCreditsRequest_Void:
		c.Action, c.Bucket = command.VoidBucket, accounting.BucketID(x.Void.GetBucket())
	case *greylagv1.ChangeCreditsRequest_SetPrice:
		c.Action, c.GPUType, c.Amount = command.SetPrice, x.SetPrice.GetGpuType(), accounting.Credits(x.SetPrice.GetPrice())
		c.Effective, err = instant("effective", x.SetPrice.GetEffective())
	case *greylagv1.ChangeCreditsRequest_SetBudget:
		c.Action, c.Account, c.User = command.SetBudget, x.SetBudget.GetAccount(), x.SetBudget.GetUser()
		c.Amount, c.Hard = accounting.Credits(x.SetBudget.GetLimit()), x.SetBudget.GetHard()
		c.Window = budgetWindows[Word(x.SetBudget.GetWindow())]
	case *greylagv1.ChangeCreditsRequest_Refund:
		err = readAdjustment(c, command.RefundJob, x.Refund)
	case *greylagv1.ChangeCreditsRequest_Correct:
		err = readAdjustment(c, command.CorrectJob, x.Correct)
	case *greylagv1.ChangeCreditsRequest_Close:
		err = readClose(c, x.Close)
	default:
		err = refuse("change is not set: want grant, void, set_price, set_budget, refund, correct or close")
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func readGrant(c *command.ChangeCredits, p *greylagv1.GrantCredits) (err error) {
	c.Action, c.Account, c.User, c.Amount = command.GrantCredits, p.GetAccount(), p.GetUser(), accounting.Credits(p.GetAmount())
	c.Priority, c.Scope, c.Cutoff = p.GetPriority(), ReadScope(p.GetScope()), p.GetCutoff()
	c.Code, c.Redeems = p.GetCode(), p.GetMaxRedemptions()
	var known bool
	if c.Class, known = creditClasses[Word(p.GetClass())]; !known {
		return refuse("unknown class %.40q: want purchase, grant or promo", Word(p.GetClass()))
	}
	if c.Effective, err = instant("effective", p.GetEffective()); err == nil {
		c.Expires, err = instant("expires", p.GetExpires())
	}
	return err
}

func readAdjustment(c *command.ChangeCredits, action command.CreditAction, p *greylagv1.JobAdjustment) (err error) {
	c.Action, c.Attempt, c.Amount, c.Corrects = action, cluster.Attempt(p.GetAttempt()), accounting.Credits(p.GetAmount()), p.GetCorrects()
	c.Effective, err = instant("effective", p.GetEffective())
	return err
}

func readClose(c *command.ChangeCredits, p *greylagv1.ClosePeriod) (err error) {
	c.Action, c.Period = command.ClosePeriod, p.GetPeriod()
	if c.Effective, err = instant("end", p.GetEnd()); err != nil || c.Effective != 0 {
		return err
	}
	end, err := accounting.PeriodEnd(c.Period)
	if err != nil {
		return refuse("%v: name a month or a day, or set end", err)
	}
	c.Effective = cluster.InstantOf(end)
	return nil
}

// ReadScope reads the scope of a bucket, or the known properties of a job.
func ReadScope(p *greylagv1.BucketScope) accounting.BucketScope {
	return accounting.BucketScope{
		GPUTypes: p.GetGpuTypes(), Partitions: p.GetPartitions(), QOS: p.GetQos(),
		Permille: p.GetPermille(), PerJob: accounting.Credits(p.GetPerJob()),
	}
}

// Balance writes the balance of one account, and the amount usable for a job.
func Balance(v *state.View, id accounting.PayerID, job *accounting.BucketScope, now cluster.Instant) *greylagv1.Balance {
	l := v.Credits()
	n := l.Payer(id)
	b := &greylagv1.Balance{
		Parent: string(n.Parent), Held: int64(n.Held), Spent: int64(n.Spent), Debt: int64(n.Debt),
		Limit: int64(n.Budget.Limit), Used: int64(n.Used(now)), Hard: n.Budget.Hard, Window: Enum[greylagv1.BudgetWindow](WindowWord(n.Budget.Window)),
	}
	b.Account, b.User = accounts.PayerOf(id)
	b.Deleted = v.Deleted(id)
	b.Usable = int64(v.Credits().Usable(v.ChainOf(b.Account, b.User), job, now))
	byClass := map[accounting.BucketClass]*int64{
		accounting.Purchase: &b.Purchased, accounting.GrantClass: &b.Granted, accounting.Promo: &b.Promoted, accounting.RefundClass: &b.Refunded,
	}
	for x := range l.BucketsOf(id) {
		if x.Effective > now && !x.HasExpired(now) {
			b.Upcoming += int64(x.Avail)
		}
		if !x.Usable(now) {
			continue
		}
		b.Available += int64(x.Avail)
		*byClass[x.Class] += int64(x.Avail)
		if x.Expires != 0 && x.Expires <= now.Add(7*24*time.Hour) {
			b.ExpiringWeek += int64(x.Avail)
		}
		if x.Expires != 0 && x.Expires <= now.Add(30*24*time.Hour) {
			b.ExpiringMonth += int64(x.Avail)
		}
	}
	return b
}

// Bucket writes a bucket as of an instant: its expiry counts by then, booked or not.
func Bucket(x *accounting.Bucket, now cluster.Instant) *greylagv1.Bucket {
	left, gone := x.Avail, x.Expired
	if x.HasExpired(now) {
		left, gone = 0, gone+left
	}
	return &greylagv1.Bucket{
		Id: uint64(x.ID), Class: greylagv1.BucketClass(x.Class), Amount: int64(x.Amount), Available: int64(left), Held: int64(x.Held),
		Spent: int64(x.Spent), Expired: int64(gone), Voided: int64(x.Void), Effective: Timestamp(x.Effective),
		Expires: Timestamp(x.Expires), Priority: x.Priority, Cutoff: x.Cutoff, Upcoming: x.Effective > now,
		Scope: &greylagv1.BucketScope{
			GpuTypes: x.Scope.GPUTypes, Partitions: x.Scope.Partitions, Qos: x.Scope.QOS, Permille: x.Scope.Permille, PerJob: int64(x.Scope.PerJob),
		},
	}
}

// Price writes a price.
func Price(p accounting.PriceFrom) *greylagv1.Price {
	return &greylagv1.Price{GpuType: p.GPUType, Price: int64(p.Price), From: Timestamp(p.From)}
}

// Rates writes the prices of a quote, of MIG instances by profile: the highest, if their parents differ.
func Rates(rates []accounting.Rate) (out []*greylagv1.Price) {
	for _, r := range rates {
		kind := cluster.TypeOfPriced(r.GPUType)
		i := slices.IndexFunc(out, func(p *greylagv1.Price) bool { return p.GpuType == kind })
		if i < 0 {
			i, out = len(out), append(out, &greylagv1.Price{GpuType: kind})
		}
		out[i].Price = max(out[i].Price, int64(r.Price))
	}
	return out
}

// JournalEntry writes an entry; amount is its effect on the reported balance.
func JournalEntry(e *accounting.Entry, amount accounting.Credits) *greylagv1.JournalEntry {
	p := &greylagv1.JournalEntry{
		Seq: e.Seq, At: Timestamp(e.At), Effective: Timestamp(e.Effective), Kind: greylagv1.EntryKind(e.Kind), Moved: int64(e.Amount), Amount: int64(amount),
		Job: uint64(e.Lien.Job), Attempt: uint32(e.Lien.Attempt), Corrects: e.Corrects, Late: e.Late, Key: cmp.Or(credits.KeyOf(e.Key), e.Key), Named: credits.KeyOf(e.Key) != "", Note: e.Note,
		Bucket: uint64(max(e.Debit.Bucket, e.Credit.Bucket)),
	}
	p.Account, p.User = accounts.PayerOf(e.Node)
	if b := e.Bill; b != nil && b.Kind == accounting.Counted && b.Final && b.Left == 0 {
		for _, x := range b.Lines() {
			p.Bill = append(p.Bill, &greylagv1.BilledGPUs{
				GpuType: cluster.TypeOfPriced(x.Type), Gpus: x.Count, Price: int64(x.Price), Since: Timestamp(x.Since), GpuMs: x.Millis, Cost: int64(x.Cost),
			})
		}
	}
	return p
}
