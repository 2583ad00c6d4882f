package server_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

const credit = int64(accounting.One)

const payersText = `[[account]]
name = 'uni'

[[account]]
name = 'physics'
parent = 'uni'
coordinators = ['bob']

[[account]]
name = 'maths'
parent = 'uni'

[[user]]
name = 'ann'
account = 'physics'
default = true

[[user]]
name = 'eve'
account = 'maths'
default = true
`

var eve = cluster.Identity{User: "eve", UID: 1003, GID: 1003}

// newCreditCluster returns a cluster where jobs are charged: a GPU-hour costs two credits, and
// physics has a hundred.
func newCreditCluster(t *testing.T, private bool) *world {
	t.Helper()
	w := newWorld(t, options{policy: func(p *cluster.Policy) { p.Credits.On, p.Private = true, private }})
	_, err := load(w, olga, payersText, false)
	must(t, err)
	for _, x := range []*greylagv1.ChangeCreditsRequest{
		priceRequest(&greylagv1.SetPrice{GpuType: "h100", Price: 2 * credit}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Class: greylagv1.BucketClass_BUCKET_CLASS_PURCHASE, Amount: 100 * credit}),
	} {
		_, err := change(w, root, x)
		must(t, err)
	}
	return w
}

// change makes one change, with a new request ID if it has none.
func change(w *world, who cluster.Identity, x *greylagv1.ChangeCreditsRequest) (*greylagv1.ChangeCreditsResponse, error) {
	if x.RequestId == "" {
		x.RequestId = client.NewRequestID()
	}
	return w.as(who).Credits().ChangeCredits(w.t.Context(), x)
}

func grantRequest(x *greylagv1.GrantCredits) *greylagv1.ChangeCreditsRequest {
	return &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_Grant{Grant: x}}
}

func voidRequest(x *greylagv1.VoidBucket) *greylagv1.ChangeCreditsRequest {
	return &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_Void{Void: x}}
}

func priceRequest(x *greylagv1.SetPrice) *greylagv1.ChangeCreditsRequest {
	return &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_SetPrice{SetPrice: x}}
}

func budgetRequest(x *greylagv1.SetBudget) *greylagv1.ChangeCreditsRequest {
	return &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_SetBudget{SetBudget: x}}
}

func refundRequest(x *greylagv1.JobAdjustment) *greylagv1.ChangeCreditsRequest {
	return &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_Refund{Refund: x}}
}

func correctRequest(x *greylagv1.JobAdjustment) *greylagv1.ChangeCreditsRequest {
	return &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_Correct{Correct: x}}
}

func closeRequest(x *greylagv1.ClosePeriod) *greylagv1.ChangeCreditsRequest {
	return &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_Close{Close: x}}
}

// balance returns the balance of one payer; an empty one if the caller sees none.
func balance(w *world, who cluster.Identity, account, user string) *greylagv1.Balance {
	w.t.Helper()
	all, err := w.as(who).Credits().ListBalances(w.t.Context(), &greylagv1.ListBalancesRequest{Buckets: true})
	must(w.t, err)
	for _, b := range all.Balances {
		if b.Account == account && b.User == user {
			return b
		}
	}
	return &greylagv1.Balance{}
}

// books returns everything about credits that any caller can see.
func books(w *world) string {
	w.t.Helper()
	all, err := w.as(root).Credits().ListBalances(w.t.Context(), &greylagv1.ListBalancesRequest{Buckets: true})
	must(w.t, err)
	prices, err := w.as(root).Credits().ListPrices(w.t.Context(), &greylagv1.ListPricesRequest{History: true})
	must(w.t, err)
	return fmt.Sprint(all.Entries, all.Balances, prices.Prices)
}

// statement returns the lines of a statement: the opening balance, the entries, the closing
// balance.
func statement(w *world, who cluster.Identity, p *greylagv1.StreamStatementRequest) (before, after int64, entries []*greylagv1.JournalEntry, err error) {
	stream, err := w.as(who).Credits().StreamStatement(w.t.Context(), p)
	must(w.t, err)
	defer stream.Close()
	for n := 0; stream.Receive(); n++ {
		switch line := stream.Msg().Line.(type) {
		case *greylagv1.StreamStatementResponse_Entry:
			entries = append(entries, line.Entry)
		case *greylagv1.StreamStatementResponse_Balance:
			if after = line.Balance; n == 0 {
				before = after
			}
		}
	}
	return before, after, entries, stream.Err()
}

// paidJob requests GPUs for an hour, charged to physics.
func paidJob(name string, gpus int32) *greylagv1.JobSpec {
	spec := job(name)
	spec.Request = &greylagv1.Request{Gpus: gpus, GpuTypes: []string{"h100"}}
	spec.TimeLimit = durationpb.New(time.Hour)
	return spec
}

// TestCreditChanges checks who may change what, and the answers.
func TestCreditChanges(t *testing.T) {
	w := newCreditCluster(t, false)
	past, soon := timestamppb.New(time.Now().Add(-time.Hour)), timestamppb.New(time.Now().Add(time.Hour))
	for i, row := range []struct {
		who  cluster.Identity
		x    *greylagv1.ChangeCreditsRequest
		want connect.Code // 0: done
	}{
		{ann, grantRequest(&greylagv1.GrantCredits{Account: "physics", User: "ann", Amount: credit}), connect.CodePermissionDenied},
		{olga, priceRequest(&greylagv1.SetPrice{GpuType: "h100", Price: credit}), connect.CodePermissionDenied},
		{bob, refundRequest(&greylagv1.JobAdjustment{Job: "1", Amount: credit}), connect.CodePermissionDenied},
		{root, grantRequest(&greylagv1.GrantCredits{Account: "physics", User: "ann", Amount: credit, Class: greylagv1.BucketClass_BUCKET_CLASS_PROMO, Expires: soon, Code: "SPRING", MaxRedemptions: 1}), 0},
		{root, grantRequest(&greylagv1.GrantCredits{Account: "maths", User: "eve", Amount: credit, Code: "SPRING", MaxRedemptions: 1}), connect.CodeFailedPrecondition},
		{root, voidRequest(&greylagv1.VoidBucket{Bucket: 2}), 0},
		{root, voidRequest(&greylagv1.VoidBucket{Bucket: 77}), connect.CodeNotFound},
		{root, budgetRequest(&greylagv1.SetBudget{Account: "uni", Limit: 90 * credit, Hard: true, Window: greylagv1.BudgetWindow_BUDGET_WINDOW_MONTH}), 0},
		{bob, budgetRequest(&greylagv1.SetBudget{Account: "physics", User: "ann", Limit: 50 * credit, Hard: true}), 0},
		{bob, budgetRequest(&greylagv1.SetBudget{Account: "physics", Limit: 500 * credit}), connect.CodePermissionDenied},
		{bob, budgetRequest(&greylagv1.SetBudget{Account: "maths", User: "eve", Limit: credit}), connect.CodePermissionDenied},
		{root, refundRequest(&greylagv1.JobAdjustment{Job: "4711", Amount: credit}), connect.CodeNotFound},
		{root, refundRequest(&greylagv1.JobAdjustment{Job: "4711_2", Amount: credit}), connect.CodeNotFound},
		{root, correctRequest(&greylagv1.JobAdjustment{Job: "4711", Amount: credit}), connect.CodeNotFound},
		{root, closeRequest(&greylagv1.ClosePeriod{Period: "first", End: past}), 0},
		{root, closeRequest(&greylagv1.ClosePeriod{Period: "second", End: soon}), connect.CodeFailedPrecondition},
	} {
		if _, err := change(w, row.who, row.x); (err != nil || row.want != 0) && connect.CodeOf(err) != row.want {
			t.Errorf("row %d, %v by %s: %v, want %v", i, row.x, row.who.User, err, row.want)
		}
	}
	has := balance(w, ann, "physics", "ann")
	if has.Limit != 50*credit || !has.Hard || has.Usable != 50*credit || len(has.Buckets) != 1 || has.Buckets[0].Voided != credit || has.Parent != "physics" {
		t.Errorf("ann has %v", has)
	}
	if uni := balance(w, ann, "uni", ""); uni.Window != greylagv1.BudgetWindow_BUDGET_WINDOW_MONTH || uni.Limit != 90*credit || uni.Usable != 0 {
		t.Errorf("uni has %v", uni)
	}
	if _, err := w.as(ann).Credits().ListBalances(t.Context(), &greylagv1.ListBalancesRequest{Accounts: []string{"nowhere"}}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("balances of an account that is not there: %v", err)
	}
}

// TestCreditsMalformed checks that an invalid change of credits is refused and changes nothing.
func TestCreditsMalformed(t *testing.T) {
	w := newCreditCluster(t, false)
	before := books(w)
	long := strings.Repeat("x", 300)
	past := timestamppb.New(time.Now().Add(-time.Hour))
	for i, x := range []*greylagv1.ChangeCreditsRequest{
		{}, grantRequest(&greylagv1.GrantCredits{}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics"}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: -5}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 1<<53 + 1}),
		grantRequest(&greylagv1.GrantCredits{Account: "absent", Amount: 1}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", User: "absent", Amount: 1}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics/ann", Amount: 1}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 1, Class: 99}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 1, Class: greylagv1.BucketClass_BUCKET_CLASS_REFUND}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 1, Expires: past}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 1, Expires: &timestamppb.Timestamp{Seconds: 1 << 60}}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 1, Code: "X"}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 1, Code: long, MaxRedemptions: 1}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 1, Scope: &greylagv1.BucketScope{Permille: 1001}}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 1, Scope: &greylagv1.BucketScope{PerJob: -1}}),
		grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 1, Scope: &greylagv1.BucketScope{GpuTypes: []string{""}}}),
		priceRequest(&greylagv1.SetPrice{Price: 1}), priceRequest(&greylagv1.SetPrice{GpuType: long, Price: 1}), priceRequest(&greylagv1.SetPrice{GpuType: "h100", Price: -1}),
		priceRequest(&greylagv1.SetPrice{GpuType: "h100", Price: 1, Effective: past}),
		budgetRequest(&greylagv1.SetBudget{Account: "physics", Limit: -1}), budgetRequest(&greylagv1.SetBudget{Account: "physics", Limit: 1, Window: 99}),
		refundRequest(&greylagv1.JobAdjustment{Amount: 1}), refundRequest(&greylagv1.JobAdjustment{Job: "x", Amount: 1}),
		closeRequest(&greylagv1.ClosePeriod{}), closeRequest(&greylagv1.ClosePeriod{Period: "banana"}), closeRequest(&greylagv1.ClosePeriod{Period: long, End: past}),
		&greylagv1.ChangeCreditsRequest{RequestId: long, Change: grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 1}).Change},
	} {
		if _, err := change(w, root, x); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("row %d, %v: %v", i, x, err)
		}
	}
	for _, p := range []*greylagv1.QuoteJobsRequest{{}, {Jobs: []*greylagv1.JobSpec{{Name: "no script"}}}} {
		if _, err := w.as(ann).Credits().QuoteJobs(t.Context(), p); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("quote of %v: %v", p, err)
		}
	}
	if _, _, _, err := statement(w, root, &greylagv1.StreamStatementRequest{}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a statement of nothing: %v", err)
	}
	if after := books(w); after != before {
		t.Errorf("what was refused left\n%s\nof\n%s", after, before)
	}
}

// TestCreditsKeyAlone checks that a key needs no request ID.
func TestCreditsKeyAlone(t *testing.T) {
	w := newCreditCluster(t, false)
	for i := range 2 {
		r, err := w.as(root).Credits().ChangeCredits(w.t.Context(), &greylagv1.ChangeCreditsRequest{Key: strings.Repeat("invoice/", 16), Change: grantRequest(&greylagv1.GrantCredits{Account: "maths", Amount: 5 * credit}).Change})
		must(t, err)
		if r.AlreadyDone != (i > 0) {
			t.Errorf("request %d: %v", i+1, r)
		}
	}
	if has := balance(w, eve, "maths", ""); has.Available != 5*credit {
		t.Errorf("maths has %v", has)
	}
}

// TestCreditsOneKey checks that a change with a key is made once, in any request, and that the note
// is not compared.
func TestCreditsOneKey(t *testing.T) {
	w := newCreditCluster(t, false)
	var first *greylagv1.ChangeCreditsResponse
	for i, note := range []string{"half of the year", "all of it", ""} {
		r, err := change(w, root, &greylagv1.ChangeCreditsRequest{Key: "invoice 17", Note: note, Change: grantRequest(&greylagv1.GrantCredits{Account: "maths", Amount: 5 * credit}).Change})
		must(t, err)
		if i == 0 {
			first = r
		}
		if r.AlreadyDone != (i > 0) || r.Bucket != first.Bucket || r.AlreadyDone && (r.DoneBy != "root" || r.DoneAt == nil) {
			t.Errorf("%s: %v", note, r)
		}
	}
	_, err := change(w, root, &greylagv1.ChangeCreditsRequest{Key: "invoice 17", Change: grantRequest(&greylagv1.GrantCredits{Account: "physics", Amount: 5 * credit}).Change})
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("for another account: %v", err)
	}
	if has := balance(w, eve, "maths", ""); has.Available != 5*credit {
		t.Errorf("maths has %v", has)
	}
}

// TestCreditsOneRequestID checks that a change is made once however often it is sent and whichever
// controller leads, and that its ID is refused for any other change.
func TestCreditsOneRequestID(t *testing.T) {
	w := newCreditCluster(t, false)
	grant := func(amount int64) *greylagv1.ChangeCreditsRequest {
		return &greylagv1.ChangeCreditsRequest{RequestId: "invoice 17", Change: grantRequest(&greylagv1.GrantCredits{Account: "maths", Amount: amount}).Change}
	}
	first, err := change(w, root, grant(5*credit))
	must(t, err)
	for range 3 {
		again, err := change(w, root, grant(5*credit))
		if err != nil || !again.AlreadyDone || again.Bucket != first.Bucket || again.Entries != first.Entries || !bytes.Equal(again.Head, first.Head) {
			t.Errorf("again: %v, %v", again, err)
		}
	}
	if _, err := change(w, root, grant(6*credit)); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "used before for another change of credits") {
		t.Errorf("another payload: %v", err)
	}
	if has := balance(w, eve, "maths", ""); has.Available != 5*credit || len(has.Buckets) != 1 {
		t.Errorf("maths has %v", has)
	}
	// A refused change gets the same answer, also when there are enough credits.
	poor := &greylagv1.SubmitJobsRequest{RequestId: "once", Jobs: []*greylagv1.JobSpec{paidJob("costly", 4)}}
	for range 2 {
		if _, err := w.as(eve).Jobs().SubmitJobs(t.Context(), poor); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "needs 8.000000, has 5.000000") {
			t.Errorf("eight credits of five: %v", err)
		}
		_, err := change(w, root, &greylagv1.ChangeCreditsRequest{RequestId: "more", Change: grantRequest(&greylagv1.GrantCredits{Account: "maths", Amount: 5 * credit}).Change})
		must(t, err)
	}
	poor.RequestId = "again"
	if _, err := w.as(eve).Jobs().SubmitJobs(t.Context(), poor); err != nil {
		t.Errorf("eight credits of ten: %v", err)
	}
}

// TestCreditsOfAJob follows a job's credits from the quote to the refund.
func TestCreditsOfAJob(t *testing.T) {
	w := newCreditCluster(t, false)
	n, c := newNode(w, "n1"), w.as(ann)
	quote := func(spec *greylagv1.JobSpec) *greylagv1.QuoteJobsResponse {
		q, err := c.Credits().QuoteJobs(t.Context(), &greylagv1.QuoteJobsRequest{Jobs: []*greylagv1.JobSpec{spec}})
		must(t, err)
		return q
	}
	if q := quote(paidJob("work", 2)); q.Lien != 4*credit || q.Account != "physics" || q.User != "ann" || q.Usable != 100*credit || q.Refusal != "" || q.Free || len(q.Rates) != 1 || q.Rates[0].Price != 2*credit {
		t.Errorf("quote %v", q)
	}
	if q := quote(job("no GPU")); !q.Free || q.Lien != 0 {
		t.Errorf("quote without GPUs: %v", q)
	}
	costly := paidJob("costly", 2)
	costly.TimeLimit = durationpb.New(26 * time.Hour)
	if q := quote(costly); q.Lien != 104*credit || !strings.Contains(q.Refusal, "needs 104.000000, has 100.000000") || q.Hint == "" {
		t.Errorf("quote beyond what there is: %v", q)
	}
	answer, err := c.Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: "work", Jobs: []*greylagv1.JobSpec{paidJob("work", 2)}})
	must(t, err)
	id := answer.Jobs[0].Id
	got, err := c.Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: fmt.Sprint(id)})
	must(t, err)
	if answer.Lien != 4*credit || got.Jobs[0].Lien != 4*credit {
		t.Errorf("set aside %d, the job says %d", answer.Lien, got.Jobs[0].Lien)
	}
	due := w.runs(n, id)
	if has := balance(w, ann, "physics", "ann"); has.Spent != due || has.Held != 0 || has.Debt != 0 || due == 0 {
		t.Errorf("ann has %v, the job came to %d", has, due)
	}
	back, err := change(w, root, refundRequest(&greylagv1.JobAdjustment{Job: fmt.Sprint(id), Amount: due}))
	if err != nil || back.Returned != due {
		t.Errorf("refund: %v, %v", back, err)
	}
	if _, err := change(w, root, refundRequest(&greylagv1.JobAdjustment{Job: fmt.Sprint(id), Amount: 1})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("more than was spent: %v", err)
	}
	more, err := change(w, root, correctRequest(&greylagv1.JobAdjustment{Job: fmt.Sprint(id), Attempt: 1, Amount: 3 * credit}))
	if err != nil || more.Charged != 3*credit {
		t.Errorf("correct: %v, %v", more, err)
	}
	if has := balance(w, ann, "physics", ""); has.Available != 97*credit || has.Spent != 3*credit {
		t.Errorf("physics has %v", has)
	}
}

// runs simulates a node on which a job runs to its end, and returns its charge.
func (w *world) runs(n *node, id uint64) int64 {
	w.t.Helper()
	set := n.busy()
	tell := &greylagv1.ReportedTask{Job: id, Attempt: 1, Phase: greylagv1.TaskPhase_TASK_PHASE_STARTED}
	for _, phase := range []string{"started", "ended", "clean"} {
		if tell.Phase = wire.Enum[greylagv1.TaskPhase](phase); phase != "started" {
			tell.Cause = greylagv1.TaskCause_TASK_CAUSE_EXITED
		}
		n.report(set.GetVersion(), tell)
	}
	got, err := w.as(root).Jobs().GetJob(w.t.Context(), &greylagv1.GetJobRequest{Job: fmt.Sprint(id)})
	must(w.t, err)
	j := got.Jobs[0]
	ran := j.Ended.AsTime().Sub(j.Started.AsTime())
	if due := 2 * ran.Milliseconds() * 2 * credit / 3_600_000; j.State != greylagv1.JobState_JOB_STATE_COMPLETED || j.Charged != due || j.Lien != 0 {
		w.t.Errorf("it ran for %s and came to %d: %v", ran, due, j)
	}
	return j.Charged
}

// TestStatementOfMany checks that a statement of any length is streamed, begins and ends with
// balances that match its lines, and can begin and end at any time.
func TestStatementOfMany(t *testing.T) {
	w := newCreditCluster(t, false)
	const many = 300
	var stamps []*timestamppb.Timestamp
	for i := range int64(many) {
		_, err := change(w, root, grantRequest(&greylagv1.GrantCredits{Account: "maths", User: "eve", Amount: i + 1}))
		must(t, err)
	}
	before, after, all, err := statement(w, eve, &greylagv1.StreamStatementRequest{Account: "uni"})
	must(t, err)
	sum := int64(0)
	for _, e := range all {
		sum += e.Amount
		stamps = append(stamps, e.At)
	}
	if len(all) != many+1 || before != 0 || sum != after || after != 100*credit+many*(many+1)/2 {
		t.Fatalf("%d lines from %d to %d, their sum is %d", len(all), before, after, sum)
	}
	before, after, some, err := statement(w, eve, &greylagv1.StreamStatementRequest{Account: "maths", User: "eve", From: stamps[101], Before: stamps[201]})
	must(t, err)
	if len(some) != 100 || some[0].Amount != 101 || before != 100*101/2 || after != 200*201/2 || some[0].User != "eve" || some[0].Kind != greylagv1.EntryKind_ENTRY_KIND_GRANT {
		t.Errorf("%d lines from %d to %d, first %v", len(some), before, after, some[0])
	}
	if before, after, none, err := statement(w, eve, &greylagv1.StreamStatementRequest{Account: "maths", From: timestamppb.New(time.Now().Add(time.Hour))}); err != nil || before != after || len(none) != 0 || after != many*(many+1)/2 {
		t.Errorf("of tomorrow: %d lines from %d to %d, %v", len(none), before, after, err)
	}
	if _, _, _, err := statement(w, eve, &greylagv1.StreamStatementRequest{Account: "nowhere"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("of an unknown account: %v", err)
	}
	prices, err := w.as(eve).Credits().ListPrices(t.Context(), &greylagv1.ListPricesRequest{History: true})
	if err != nil || len(prices.Prices) != 1 || prices.Prices[0].GpuType != "h100" {
		t.Errorf("prices: %v, %v", prices, err)
	}
}

// TestWhoSeesCredits: where jobs are private, users see their own credits and those of accounts;
// coordinators also see their users'.
func TestWhoSeesCredits(t *testing.T) {
	w := newCreditCluster(t, true)
	for _, user := range []string{"ann", "eve"} {
		account := map[string]string{"ann": "physics", "eve": "maths"}[user]
		_, err := change(w, root, grantRequest(&greylagv1.GrantCredits{Account: account, User: user, Amount: credit}))
		must(t, err)
	}
	for _, row := range []struct {
		who  cluster.Identity
		user string
		sees bool
	}{
		{ann, "ann", true}, {ann, "eve", false}, {eve, "ann", false}, {eve, "eve", true},
		{bob, "ann", true}, {bob, "eve", false}, {olga, "ann", true}, {root, "eve", true},
	} {
		account := map[string]string{"ann": "physics", "eve": "maths"}[row.user]
		if got := balance(w, row.who, account, row.user).Available == credit; got != row.sees {
			t.Errorf("%s sees the balance of %s: %t", row.who.User, row.user, got)
		}
		_, _, _, err := statement(w, row.who, &greylagv1.StreamStatementRequest{Account: account, User: row.user})
		if got := err == nil; got != row.sees || !got && connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s sees the statement of %s: %v", row.who.User, row.user, err)
		}
		// The statement of an account includes all its users.
		_, _, _, err = statement(w, row.who, &greylagv1.StreamStatementRequest{Account: account})
		if got, may := err == nil, row.sees && row.who.User != row.user; got != may {
			t.Errorf("%s sees the statement of %s: %v", row.who.User, account, err)
		}
	}
}
