package server

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/audit"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/server/journals"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// creditService implements CreditService. The state decides who may change credits.
type creditService struct {
	*Server
	*journals.Reader
}

// ChangeCredits carries out one change.
func (s *creditService) ChangeCredits(ctx context.Context, p *greylagv1.ChangeCreditsRequest) (*greylagv1.ChangeCreditsResponse, error) {
	cmd, err := wire.ReadCreditChange(p)
	if err != nil {
		return nil, err
	}
	c := call.From(ctx)
	same := proto.CloneOf(p) // requests that differ only in key and note count as the same
	same.Key, same.Note = "", ""
	if x := cmp.Or(same.GetRefund(), same.GetCorrect()); x != nil {
		if cmd.Job, err = s.billed(ctx, c, x); err != nil {
			return nil, err
		}
		x.Job = cmd.Job.String()
	}
	payload, err := call.Payload(same)
	if err != nil {
		return nil, err
	}
	id := cmp.Or(p.GetRequestId(), p.GetKey()) // a key alone is sufficient
	if cmd.Request, err = c.RequestID(id, "", payload); err != nil {
		return nil, err
	}
	cmd.Actor = c.Actor()
	r, _, err := call.Propose[*command.Credited](ctx, s.cfg.Leader, cmd)
	if err != nil {
		return nil, err
	}
	var warnings []string
	switch cmd.Action {
	case command.GrantCredits:
		warnings = missing(s.cfg.State.View(), &cmd.Scope)
	case command.SetPrice:
		if why := audit.GPUTypesOf(s.cfg.State.View()).Missing(cmd.GPUType); why != "" {
			warnings = []string{why}
		}
	case command.RefundJob:
		if r.Lost > 0 {
			warnings = []string{r.Lost.Short() + " of it returned to buckets that have expired or were voided, and cannot be spent: gctl credit grant grants the amount again"}
		}
	}
	out := &greylagv1.ChangeCreditsResponse{
		Warnings: warnings, Bucket: uint64(r.Bucket), Charged: int64(r.Charged), Released: int64(r.Released), Returned: int64(r.Returned),
		Unusable: int64(r.Lost), Repaid: int64(r.Repaid), Debt: int64(r.Debt), AlreadyDone: r.Again, Entries: r.Seq, Head: r.Head[:],
	}
	if r.Again {
		out.DoneBy, out.DoneAt = r.By, wire.Timestamp(r.At)
	}
	return out, nil
}

// billed returns the job that a refund or a correction is about; for an array one element must be
// named. A caller whom the state will refuse learns nothing about jobs.
func (s *creditService) billed(ctx context.Context, c *call.Caller, p *greylagv1.JobAdjustment) (cluster.JobID, error) {
	ref, err := wire.ReadRef(p.GetJob())
	if err != nil || c.Role < command.RoleAdmin {
		return ref.ID, err
	}
	v, _, err := s.views.Fresh(ctx, nil)
	if err != nil {
		return 0, err
	}
	if last, _ := v.Credits().Head(); p.GetCorrects() > last {
		return 0, call.Refuse(command.NotFound, "gctl credit statement ACCOUNT --json shows the entry numbers", "there is no entry %d: the journal has %d", p.GetCorrects(), last)
	}
	ids, err := joblist.Resolve(v, s.cfg.Archive, ref)
	switch {
	case err != nil:
		return 0, err
	case len(ids) == 1:
		return ids[0], nil
	case len(ids) == 0 && ref.Index == cluster.NoIndex: // its bill may still exist
		return ref.ID, nil
	case len(ids) == 0:
		return 0, joblist.NoSuchJob(ref)
	}
	return 0, call.Refuse(command.InvalidArgument, fmt.Sprintf("name one of them, %d_INDEX: gctl acct -j %d -o JobID,Charged lists them", ref.ID, ref.ID), "job %d is an array of %d jobs, each with a bill of its own", ref.ID, len(ids))
}

// missing returns the unknown names in a scope, and whether a bucket of that scope can pay for
// anything.
func missing(v *state.View, scope *accounting.BucketScope) (warnings []string) {
	types := audit.GPUTypesOf(v)
	for _, list := range []struct {
		names []string
		what  string
		known func(name string) bool
	}{
		{scope.GPUTypes, "no node has a GPU of type %s", types.Has},
		{scope.Partitions, "there is no partition %s", func(name string) bool { _, known := v.Policy().Partition(name); return known }},
		{scope.QOS, "there is no qos %s", func(name string) bool { _, known := v.Policy().QOSNamed(name); return known }},
	} {
		unknown := slices.DeleteFunc(slices.Clone(list.names), list.known)
		if len(unknown) == 0 {
			continue
		}
		text := fmt.Sprintf(list.what, strings.Join(unknown, ", "))
		if len(unknown) == len(list.names) {
			text += ": this grant cannot pay for any job on the current cluster"
		}
		warnings = append(warnings, text)
	}
	return warnings
}

// ListBalances lists the balances of accounts.
func (s *creditService) ListBalances(ctx context.Context, p *greylagv1.ListBalancesRequest) (*greylagv1.ListBalancesResponse, error) {
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	l, c := v.Credits(), call.From(ctx)
	now := max(v.Now(), cluster.InstantOf(s.cfg.Clock()))
	seq, _ := l.Head()
	out := &greylagv1.ListBalancesResponse{Entries: seq, Charging: v.Policy().Credits.On, AsOf: asOf}
	for _, name := range p.GetAccounts() {
		if t := v.Accounts().Tree; (t == nil || t.Account(name) < 0) && l.Payer(accounting.PayerID(name)) == (accounting.Payer{}) {
			return nil, call.Refuse(command.NotFound, "gctl account list shows all", "there is no account %s", name)
		}
	}
	job := wire.ReadScope(p.GetJob())
	at := map[accounting.PayerID]int{}
	for id := range payers(l, p.GetAccounts()) {
		account, user := accounts.PayerOf(id)
		if _, again := at[id]; again || p.GetUser() != "" && user != p.GetUser() || !c.Sees(v, cluster.AssociationKey{Account: account, User: user}) {
			continue
		}
		b := wire.Balance(v, id, &job, now)
		if b.Deleted && !p.GetDeleted() && !slices.Contains(p.GetAccounts(), account) && b.Available == 0 && b.Held == 0 && b.Debt == 0 {
			continue
		}
		if len(out.Balances) == maxBalances {
			return nil, call.Refuse(command.Exhausted, "name some of them: gctl credit balance ACCOUNT", "more than %d accounts and users have balances", maxBalances)
		}
		at[id] = len(out.Balances)
		out.Balances = append(out.Balances, b)
	}
	if p.GetBuckets() {
		for x := range l.Buckets() {
			if i, asked := at[x.Owner[0]]; asked {
				out.Balances[i].Buckets = append(out.Balances[i].Buckets, wire.Bucket(x, now))
			}
		}
	}
	return out, nil
}

// maxBalances bounds one answer.
const maxBalances = 100_000

// payers returns accounts of a ledger with their users and descendants, each after its parent: all,
// or those named. O(accounts log users) plus the selected users.
func payers(l *accounting.Ledger, tops []string) iter.Seq[accounting.PayerID] {
	return func(yield func(accounting.PayerID) bool) {
		below := map[accounting.PayerID][]accounting.PayerID{}
		for id := range accountsOf(l) {
			parent := l.Payer(id).Parent
			below[parent] = append(below[parent], id)
		}
		var walk func(accounting.PayerID) bool
		walk = func(id accounting.PayerID) bool {
			if !yield(id) {
				return false
			}
			for user := range usersOf(l, id) {
				if !yield(user) {
					return false
				}
			}
			return !slices.ContainsFunc(below[id], func(child accounting.PayerID) bool { return !walk(child) })
		}
		starts := below[""]
		if len(tops) > 0 {
			starts = nil
		}
		for _, name := range tops {
			if id := accounting.PayerID(name); l.Payer(id) != (accounting.Payer{}) {
				starts = append(starts, id)
			}
		}
		for _, id := range starts {
			if !walk(id) {
				return
			}
		}
	}
}

// accountsOf yields the accounts of a ledger that are not users. The users of an account follow
// each other, and are skipped.
func accountsOf(l *accounting.Ledger) iter.Seq[accounting.PayerID] {
	return func(yield func(accounting.PayerID) bool) {
		for next, more := accounting.PayerID(""), true; more; {
			more = false
			for id := range l.PayersFrom(next) {
				account, user := accounts.PayerOf(id)
				if user != "" {
					next, more = accounting.PayerID(account+string('/'+1)), true
					break
				}
				if !yield(id) {
					return
				}
			}
		}
	}
}

// usersOf yields the users of an account.
func usersOf(l *accounting.Ledger, account accounting.PayerID) iter.Seq[accounting.PayerID] {
	return func(yield func(accounting.PayerID) bool) {
		for id := range l.PayersFrom(account + "/") {
			if !strings.HasPrefix(string(id), string(account)+"/") || !yield(id) {
				return
			}
		}
	}
}

// within reports whether an account is another or below it.
func within(l *accounting.Ledger, id, top accounting.PayerID) bool {
	for id != "" && id != top {
		id = l.Payer(id).Parent
	}
	return id == top
}

// StreamStatement streams the entries of an account, with the balances before and after.
func (s *creditService) StreamStatement(ctx context.Context, p *greylagv1.StreamStatementRequest, stream *connect.ServerStream[greylagv1.StreamStatementResponse]) error {
	top := accounting.PayerID(p.GetAccount())
	if p.GetUser() != "" {
		top += accounting.PayerID("/" + p.GetUser())
	}
	v, _, err := s.views.Fresh(ctx, nil)
	if err != nil {
		return err
	}
	l := v.Credits()
	switch {
	case p.GetAccount() == "":
		return call.Refuse(command.InvalidArgument, "", "a statement needs an account")
	case !call.From(ctx).Sees(v, cluster.AssociationKey{Account: p.GetAccount(), User: p.GetUser()}):
		return call.Refuse(command.Denied, "", "you may not see the credits of %s", top)
	case p.GetUser() == "" && v.Policy().Private && call.From(ctx).Role < command.RoleOperator && !v.Coordinates(call.From(ctx).User.User, p.GetAccount()):
		return call.Refuse(command.Denied, "gctl credit statement "+p.GetAccount()+"/"+call.From(ctx).User.User+" is yours", "the statement of account %s includes all its users", top)
	case l.Payer(top) == (accounting.Payer{}):
		return call.Refuse(command.NotFound, "gctl credit balance lists the accounts", "nothing was ever granted to %s or charged to it", top)
	}
	from, before := journals.Interval(p)
	if from > before {
		return call.Refuse(command.InvalidArgument, "swap --from and --to", "the interval ends before it begins")
	}
	var balance accounting.Credits
	begun := false
	tell := func() error {
		begun = true
		return stream.Send(&greylagv1.StreamStatementResponse{Line: &greylagv1.StreamStatementResponse_Balance{Balance: int64(balance)}})
	}
	own := ownership(l, top)
	err = s.journals.EachEntry(ctx, func(e *accounting.Entry) error {
		if e.At >= before {
			return journals.ErrEnough
		}
		if !begun && e.At >= from {
			if err := tell(); err != nil {
				return err
			}
		}
		amount := own.effect(e)
		if balance += amount; e.At < from || amount == 0 && !own.in(e.Node) {
			return nil
		}
		return stream.Send(&greylagv1.StreamStatementResponse{Line: &greylagv1.StreamStatementResponse_Entry{Entry: wire.JournalEntry(e, amount)}})
	})
	if err != nil {
		return err
	}
	if !begun {
		if err := tell(); err != nil {
			return err
		}
	}
	return tell()
}

// owned reports whether an entry concerns an account or a descendant.
type owned struct {
	l   *accounting.Ledger
	top accounting.PayerID
	was map[accounting.PayerID]bool
}

func ownership(l *accounting.Ledger, top accounting.PayerID) owned {
	return owned{l, top, map[accounting.PayerID]bool{}}
}

func (o owned) in(id accounting.PayerID) bool {
	yes, known := o.was[id]
	if !known {
		yes = within(o.l, id, o.top)
		o.was[id] = yes
	}
	return yes
}

// has reports whether a book account is part of the account's balance: its buckets, their liens,
// and its debt.
func (o owned) has(b accounting.BookAccount) bool {
	switch b.Kind {
	case accounting.InBucket, accounting.HeldFrom:
		x, found := o.l.Bucket(b.Bucket)
		return found && o.in(x.Owner[0])
	case accounting.Owed:
		return o.in(b.Node)
	}
	return false
}

// effect returns the amount by which an entry changes the account's balance.
func (o owned) effect(e *accounting.Entry) (amount accounting.Credits) {
	if o.has(e.Credit) {
		amount += e.Amount
	}
	if o.has(e.Debit) {
		amount -= e.Amount
	}
	return amount
}

// ListPrices lists the prices of GPU types.
func (s *creditService) ListPrices(ctx context.Context, p *greylagv1.ListPricesRequest) (*greylagv1.ListPricesResponse, error) {
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	out := &greylagv1.ListPricesResponse{AsOf: asOf}
	now := max(v.Now(), cluster.InstantOf(s.cfg.Clock()))
	last := ""
	for price := range v.Credits().Prices() {
		past := price.From <= now
		if p.GetHistory() || !past || price.GPUType != last {
			p := wire.Price(price)
			p.Upcoming = !past
			out.Prices = append(out.Prices, p)
		}
		if past {
			last = price.GPUType
		}
	}
	return out, nil
}

// QuoteJobs returns the liens that jobs would need.
func (s *creditService) QuoteJobs(ctx context.Context, p *greylagv1.QuoteJobsRequest) (*greylagv1.QuoteJobsResponse, error) {
	c := call.From(ctx)
	jobs := p.GetJobs()
	if n := len(jobs); n == 0 || n > maxSubmit {
		return nil, call.Refuse(command.InvalidArgument, "", "%d jobs to quote: a request takes 1 to %d", n, maxSubmit)
	}
	filtered, err := s.filter(ctx, c, jobs, true)
	if err != nil {
		return nil, err
	}
	subs := make([]command.Submission, len(jobs))
	for i, spec := range filtered.jobs {
		sub, err := readSubmission(spec, c.User.Identity)
		if err != nil {
			return nil, ofJob(err, i, len(jobs))
		}
		subs[i] = sub.Submission
	}
	v, _, err := s.views.Fresh(ctx, nil)
	if err != nil {
		return nil, err
	}
	q, err := s.quoted(ctx, v, c, subs)
	if err != nil {
		return nil, err
	}
	out := &greylagv1.QuoteJobsResponse{Lien: int64(q.Amount), Usable: int64(q.Usable), Free: q.Claim == nil && q.Refused == nil, PaidIn: q.PaidIn, AtLimit: int64(q.AtLimit)}
	if q.Ahead > 0 {
		out.LienWindow = durationpb.New(q.Ahead)
	}
	if q.Claim != nil {
		out.Account, out.User = accounts.PayerOf(q.Claim.Chain[0])
		out.Floating = q.Claim.Floating
		out.Rates = wire.Rates(q.Claim.Rates)
	}
	if q.Refused != nil {
		out.Refusal, out.Hint = q.Refused.Message+inAll(&q, subs), q.Refused.Hint
	}
	out.Warnings = append(filtered.notes, warnMaxPrice(v, max(v.Now(), cluster.InstantOf(s.cfg.Clock())), subs)...)
	return out, nil
}
