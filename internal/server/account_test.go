package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

const bookText = `[[account]]
name = 'uni'
shares = 40
limits = ['GrpSubmitJobs=3']

[[account]]
name = 'physics'
parent = 'uni'
coordinators = ['bob']

[[user]]
name = 'ann'
account = 'physics'
default = true
`

func load(w *world, who cluster.Identity, text string, dry bool) (*greylagv1.ImportAccountsResponse, error) {
	return w.as(who).Accounts().ImportAccounts(context.Background(), &greylagv1.ImportAccountsRequest{Toml: text, DryRun: dry})
}

func dump(w *world, who cluster.Identity) string {
	w.t.Helper()
	out, err := w.as(who).Accounts().ExportAccounts(context.Background(), &greylagv1.ExportAccountsRequest{})
	must(w.t, err)
	return out.Toml
}

// TestAccountsFile checks that an export equals what was imported, that a dry run changes nothing,
// and that a second import finds no difference.
func TestAccountsFile(t *testing.T) {
	w := newWorld(t, options{})
	if out, err := load(w, olga, bookText, true); err != nil || !strings.Contains(out.Diff, "+name = 'physics'") || dump(w, olga) != "" {
		t.Fatalf("dry run: %v\n%v", err, out)
	}
	if _, err := load(w, ann, bookText, false); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a user loaded accounts: %v", err)
	}
	first, err := load(w, olga, bookText, false)
	must(t, err)
	if got := dump(w, ann); got != bookText {
		t.Errorf("loaded\n%s\ndumped\n%s", bookText, got)
	}
	again, err := load(w, olga, bookText, false)
	must(t, err)
	if again.Diff != "" || again.Version != first.Version {
		t.Errorf("loading the same again: %v", again)
	}
	changed := strings.ReplaceAll(bookText, "shares = 40", "shares = 41") + "\n[[user]]\nname = 'bob'\naccount = 'uni'\ndefault = true\n"
	out, err := load(w, olga, changed, false)
	must(t, err)
	if want := "-shares = 40\n+shares = 41\n"; !strings.HasPrefix(out.Diff, want) || !strings.Contains(out.Diff, "+name = 'bob'") || strings.Contains(out.Diff, "ann") {
		t.Errorf("diff\n%s", out.Diff)
	}
	if _, err := load(w, olga, " \n", false); err == nil || dump(w, olga) == "" {
		t.Errorf("nothing at all was loaded: %v", err)
	}
	if _, err := load(w, olga, "# none\n", false); err != nil || dump(w, olga) != "" {
		t.Errorf("an empty file left %q: %v", dump(w, olga), err)
	}
	if _, err := load(w, olga, strings.ReplaceAll(bookText, "'uni'\nshares", "'physics'\nshares"), false); err == nil || !strings.Contains(err.Error(), "appears twice") {
		t.Errorf("an account twice: %v", err)
	}
	for _, dry := range []bool{true, false} {
		if _, err := load(w, olga, "[[account]]\nname='a'\nparent='b'\n", dry); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("a parent that is not there, dry run %v: %v", dry, err)
		}
	}
}

// TestManyAccounts imports more accounts than one command takes.
func TestManyAccounts(t *testing.T) {
	w := newWorld(t, options{})
	var text strings.Builder
	text.WriteString("[[account]]\nname = 'big'\n")
	for i := range 4500 {
		fmt.Fprintf(&text, "\n[[user]]\nname = 'u%04d'\naccount = 'big'\ndefault = true\n", i)
	}
	_, err := load(w, olga, text.String(), false)
	must(t, err)
	if got := dump(w, olga); got != text.String() {
		t.Errorf("%d bytes came back of %d", len(got), text.Len())
	}
}

// TestAccountsAtWork checks that limits refuse jobs, that shares and priorities are listed, and
// that a coordinator can change users and nothing else.
func TestAccountsAtWork(t *testing.T) {
	w := newWorld(t, options{policy: func(p *cluster.Policy) { p.Private = true }})
	_, err := load(w, olga, bookText, false)
	must(t, err)
	ctx := context.Background()
	edit := func(who cluster.Identity, e *greylagv1.AccountEdit) error {
		_, err := w.as(who).Accounts().UpdateAccounts(ctx, &greylagv1.UpdateAccountsRequest{Edits: []*greylagv1.AccountEdit{e}, RequestId: "r" + fmt.Sprint(e)})
		return err
	}
	must(t, edit(bob, &greylagv1.AccountEdit{Action: greylagv1.AccountAction_ACCOUNT_ACTION_ADD, Account: "physics", User: "bob", Limits: []string{"MaxJobs=2"}}))
	if err := edit(bob, &greylagv1.AccountEdit{Action: greylagv1.AccountAction_ACCOUNT_ACTION_ADD, Account: "uni", User: "bob"}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("beyond the coordinator's account: %v", err)
	}
	if err := edit(olga, &greylagv1.AccountEdit{Action: greylagv1.AccountAction_ACCOUNT_ACTION_MODIFY, Account: "uni", Limits: []string{"GrpSubmitJobs=many"}}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("an invalid limit: %v", err)
	}
	for range 3 {
		w.submit(w.as(ann), job("train"))
	}
	_, err = w.as(bob).Jobs().SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{Jobs: []*greylagv1.JobSpec{job("one too many")}})
	if err == nil || !strings.Contains(err.Error(), "GrpSubmitJobs of account uni is 3: 3 used, the job requests 1") {
		t.Errorf("over the limit: %v", err)
	}
	shares, err := w.as(ann).Accounts().ListShares(ctx, &greylagv1.ListSharesRequest{Accounts: []string{"physics"}})
	must(t, err)
	if n := len(shares.Shares); n != 2 || shares.Shares[0].User != "" || shares.Shares[1].User != "ann" || shares.Shares[1].FairShare != 1 {
		t.Errorf("ann sees %v", shares.Shares)
	}
	list, err := w.as(bob).Accounts().ListAccounts(ctx, &greylagv1.ListAccountsRequest{Users: true})
	must(t, err)
	if len(list.Accounts) != 3 || len(list.Users) != 2 || list.Accounts[2].Depth != 2 {
		t.Errorf("the coordinator sees %v", list)
	}
	jobs, err := w.as(olga).Accounts().ListPriorities(ctx, &greylagv1.ListPrioritiesRequest{User: "ann"})
	must(t, err)
	if len(jobs.Jobs) != 3 || jobs.Jobs[0].Account != "physics" || jobs.Jobs[0].FairShare != 10_000 {
		t.Errorf("priorities %v", jobs.Jobs)
	}
}
