// Package credits has the commands for buckets, prices, statements and refunds.
package credits

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
)

// commands holds the commands of this package in one run of gctl.
type commands struct{ *tool.Tool }

// Command returns gctl credit.
func Command(t *tool.Tool) *cobra.Command { return commands{t}.credit() }

// belowZero is the error for a negative amount that was taken for a flag.
var belowZero = regexp.MustCompile(`unknown shorthand flag: '[0-9.]' in (-[0-9.]+)$`)

func (t commands) credit() *cobra.Command {
	c := &cobra.Command{
		Use: "credit", Short: "Manage credits: balances, prices and grants", GroupID: tool.GroupAccounts, Args: tool.RequireSubcommand,
		Long: `Jobs are charged in credits if the policy enables it ([credits] enabled =
true). The maximum cost of a job is set aside at submission. When the job
ends, it is charged for the time that its GPUs were allocated, at the price at
submission (or during the run, if the policy has prices = "day"), and the rest
is released. Jobs of an account are paid from its own credits and from those
of its parent accounts. Amounts have at most six decimals.`,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return rejectEmptyFlags(c) },
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if m := belowZero.FindStringSubmatch(err.Error()); m != nil {
			return &ui.UsageError{Problem: m[1] + " is not an amount: an amount cannot be negative", Advice: "gctl credit void withdraws a grant, gctl credit correct charges a job more"}
		}
		return c.Parent().Parent().FlagErrorFunc()(c, err)
	})
	c.AddCommand(t.creditBalance(), t.creditStatement(), t.creditPrice(), t.creditQuote())
	c.AddCommand(t.creditGrant(), t.creditVoid(), t.creditBudget(), t.creditRefund("refund"), t.creditRefund("correct"), t.creditClose())
	return c
}

// changeFlags adds the options that all changes of credits have, except that of closing a period.
func changeFlags(c *cobra.Command, x *greylagv1.ChangeCreditsRequest) {
	c.Flags().StringVar(&x.Key, "key", "", "idempotency key: a change with the same key is made only once,\nby any user")
	noteFlag(c, x)
}

// fromVariable is the hint for an empty argument.
const fromVariable = "is the shell variable set?"

// rejectEmptyFlags refuses options with empty values. They come from unset variables, and the
// request without them would be wider: a grant for all jobs that never expires, a permanent budget,
// a payment that is booked again.
func rejectEmptyFlags(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		empty := f.Value.String() == ""
		if list, several := f.Value.(pflag.SliceValue); several {
			words := list.GetSlice()
			empty = len(words) == 0 || slices.Contains(words, "")
		}
		if empty {
			err = &ui.UsageError{Problem: "--" + f.Name + " is empty", Advice: fromVariable + " omit the option to do without it"}
		}
	})
	return err
}

func noteFlag(c *cobra.Command, x *greylagv1.ChangeCreditsRequest) {
	c.Flags().StringVar(&x.Note, "note", "", "reason, in one line: for statements and the audit log")
}

// sendChange sends it and returns the answer.
func (t commands) sendChange(ctx context.Context, c ui.Cluster, x *greylagv1.ChangeCreditsRequest) (*greylagv1.ChangeCreditsResponse, error) {
	if x.RequestId = x.Key; x.Key == "" {
		x.RequestId = client.NewRequestID()
	}
	answer, err := c.Credits().ChangeCredits(ctx, x)
	if err == nil && answer.AlreadyDone {
		t.Note("already done%s; nothing changed", t.firstDone(answer))
	}
	for _, w := range answer.GetWarnings() {
		t.Warn(w)
	}
	return answer, ui.Unanswered(err, "outcome unknown: repeat it safely with --key "+x.RequestId)
}

// firstDone describes who made a repeated change first, and when.
func (t commands) firstDone(a *greylagv1.ChangeCreditsResponse) (text string) {
	if a.DoneBy != "" {
		text = " by " + a.DoneBy
	}
	if a.DoneAt != nil {
		text += " at " + t.FormatTime(a.DoneAt)
	}
	return text
}

// payer splits ACCOUNT or ACCOUNT/USER. It refuses an empty part: without the user it would mean
// the whole account.
func payer(word string) (account, user string, err error) {
	account, user, slash := strings.Cut(word, "/")
	if account == "" || slash && user == "" {
		return "", "", &ui.UsageError{Problem: fmt.Sprintf("%q names no account", word), Advice: fromVariable + " write ACCOUNT, or ACCOUNT/USER"}
	}
	return account, user, nil
}

// credits reads an amount.
func credits(word string) (int64, error) {
	c, err := accounting.ParseCredits(word)
	if err != nil {
		return 0, &ui.UsageError{Problem: err.Error(), Advice: "use a format like 100 or 12.5"}
	}
	return int64(c), nil
}

// permille reads a percentage with at most one decimal; "" means unset.
func permille(word string) (int64, error) {
	whole, tenth, dotted := strings.Cut(word, ".")
	n, err := strconv.ParseUint(whole+tenth, 10, 16)
	if !dotted {
		n *= 10
	}
	switch {
	case word == "":
		return 0, nil
	case err != nil, dotted && len(tenth) != 1, n == 0, n > 1000:
		return 0, &ui.UsageError{Problem: fmt.Sprintf("--share=%s: want a percentage from 0.1 to 100 with at most one decimal", word)}
	}
	return int64(n), nil
}

// percent formats tenths of a percentage.
func percent(permille int64) string {
	return strings.TrimSuffix(fmt.Sprintf("%d.%d", permille/10, permille%10), ".0")
}

// doneJSON is the answer to a change.
type doneJSON struct {
	Bucket   uint64     `json:"bucket,omitempty"`
	Charged  string     `json:"charged,omitempty"`
	Released string     `json:"released,omitempty"`
	Returned string     `json:"returned,omitempty"`
	Lost     string     `json:"lost,omitempty"`
	Repaid   string     `json:"repaid,omitempty"`
	Debt     string     `json:"debt,omitempty"`
	Again    bool       `json:"again"`
	DoneBy   string     `json:"done_by,omitempty"`
	DoneAt   *time.Time `json:"done_at,omitempty"`
	Entries  uint64     `json:"entries"`
	Head     string     `json:"head"`
	Warnings []string   `json:"warnings,omitempty"`
}

func (t commands) report(a *greylagv1.ChangeCreditsResponse, err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	if !t.JSON {
		return t.Printed(nil, format, args...)
	}
	amount := func(c int64) string {
		if c == 0 {
			return ""
		}
		return accounting.Credits(c).String()
	}
	return t.WriteJSON(doneJSON{
		a.Bucket, amount(a.Charged), amount(a.Released), amount(a.Returned), amount(a.Unusable), amount(a.Repaid), amount(a.Debt), a.AlreadyDone, a.DoneBy, tool.Timestamp(a.DoneAt), a.Entries, fmt.Sprintf("%x", a.Head), a.Warnings,
	})
}

func (t commands) creditGrant() *cobra.Command {
	x := &greylagv1.GrantCredits{Scope: &greylagv1.BucketScope{}}
	request := &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_Grant{Grant: x}}
	var perJob, share, from, expires, class string
	c := &cobra.Command{
		PreRunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("redeems") && x.Code == "" {
				return &ui.UsageError{Problem: "--redeems without --code: it limits the grants of a code", Advice: "name it: --code WELCOME --redeems 100"}
			}
			return nil
		},
		Use: "grant ACCOUNT[/USER] AMOUNT", Short: "Grant credits to an account or a user", Args: cobra.ExactArgs(2),
		Long: `Gives an account, or one user of it, credits of their own. Those with the
lowest --priority number are spent first, then those that expire first,
promotions before grants before purchases. What the account owes is paid
first. A payment that may be booked twice gets a --key, such as the number of
its invoice.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) (err error) {
			if x.Account, x.User, err = payer(args[0]); err != nil {
				return err
			}
			if x.Amount, err = credits(args[1]); err != nil {
				return err
			}
			if perJob != "" {
				if x.Scope.PerJob, err = credits(perJob); err != nil {
					return err
				}
				if x.Scope.PerJob < 1 {
					return &ui.UsageError{Problem: fmt.Sprintf("--per-job=%s: want more than 0 and at most %s", perJob, accounting.MaxAmount), Advice: "without it a grant pays for a job until it is used up"}
				}
			}
			if x.Scope.Permille, err = permille(share); err != nil {
				return err
			}
			if x.Effective, err = t.ParseTime(from); err != nil {
				return err
			}
			if x.Expires, err = t.ParseTime(expires); err != nil {
				return err
			}
			if x.Class = wire.Enum[greylagv1.BucketClass](class); x.Class == 0 {
				return &ui.UsageError{Problem: fmt.Sprintf("unknown class %q", class), Advice: "the classes are purchase, grant and promo"}
			}
			a, err := t.sendChange(ctx, c, request)
			return t.report(a, err, "%s granted to %s: bucket %d%s", tool.FormatCredits(x.Amount), args[0], a.GetBucket(), paidBack(a))
		}),
	}
	changeFlags(c, request)
	f := c.Flags()
	f.StringVar(&class, "class", "grant", "purchase, grant or promo")
	f.StringVar(&expires, "expires", "", "expiry of the remaining credits (exclusive)")
	f.StringVar(&from, "from", "", "start of validity [now]")
	f.Int32Var(&x.Priority, "priority", 50, "lower values are spent first")
	f.StringSliceVar(&x.Scope.GpuTypes, "gpu-types", nil, "pays only for jobs that accept only these GPU types")
	f.StringSliceVar(&x.Scope.Partitions, "partitions", nil, "pays only for jobs of these partitions")
	f.StringSliceVar(&x.Scope.Qos, "qos", nil, "pays only for jobs of these QOS")
	f.StringVar(&share, "share", "", "pays at most this percentage of a job, such as 50 or 33.3")
	f.StringVar(&perJob, "per-job", "", "pays at most this much of a job")
	f.BoolVar(&x.Cutoff, "cutoff", false, "credits held by jobs expire too; otherwise jobs keep them")
	f.StringVar(&x.Code, "code", "", "the promotion code that this redeems")
	f.Int64Var(&x.MaxRedemptions, "redeems", 1, "largest number of grants with the code")
	return c
}

// paidBack prints the netted debts.
func paidBack(a *greylagv1.ChangeCreditsResponse) string {
	if a.GetRepaid() == 0 {
		return ""
	}
	return ", including " + tool.FormatCredits(a.Repaid) + " to repay debts"
}

func (t commands) creditVoid() *cobra.Command {
	x := &greylagv1.VoidBucket{}
	request := &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_Void{Void: x}}
	c := &cobra.Command{
		Use: "void BUCKET", Short: "Withdraw the rest of a grant", Args: cobra.ExactArgs(1),
		Long: "Withdraws the rest of a grant, by its number in gctl credit balance --buckets. Jobs\nkeep what they hold of it; what they release is withdrawn then.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			if _, err := fmt.Sscanf(args[0]+" ", "%d ", &x.Bucket); err != nil || x.Bucket == 0 {
				return &ui.UsageError{Problem: fmt.Sprintf("%q is not a bucket number", args[0]), Advice: "gctl credit balance --buckets lists them"}
			}
			a, err := t.sendChange(ctx, c, request)
			return t.report(a, err, "bucket %d is void: %s withdrawn", x.Bucket, tool.FormatCredits(a.GetReleased()))
		}),
	}
	changeFlags(c, request)
	return c
}

func (t commands) creditBudget() *cobra.Command {
	x := &greylagv1.SetBudget{}
	request := &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_SetBudget{SetBudget: x}}
	var soft bool
	var per string
	c := &cobra.Command{
		Use: "budget ACCOUNT[/USER] AMOUNT|none", Short: "Set an account's budget", Args: cobra.ExactArgs(2),
		Long: `Limits what an account with its sub-accounts, or one of its users, may set
aside, spend and owe in total: permanently, or per day or month (UTC). A hard
budget refuses new jobs. A soft one warns and runs them after all others.
Running jobs continue. Coordinators may set the budgets of the sub-accounts of
their account.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) (err error) {
			if x.Account, x.User, err = payer(args[0]); err != nil {
				return err
			}
			if args[1] != "none" {
				if x.Limit, err = credits(args[1]); err != nil {
					return err
				}
				if x.Limit == 0 {
					return &ui.UsageError{Problem: "a budget of 0 is ambiguous", Advice: "none removes the budget; 0.000001 blocks new jobs"}
				}
			}
			x.Hard = !soft
			if x.Window = wire.Enum[greylagv1.BudgetWindow](per); x.Window == 0 && per != "" {
				return &ui.UsageError{Problem: fmt.Sprintf("unknown period %q", per), Advice: "write --per day or --per month"}
			}
			a, err := t.sendChange(ctx, c, request)
			if x.Limit == 0 {
				return t.report(a, err, "%s has no budget", args[0])
			}
			return t.report(a, err, "the budget of %s is %s%s", args[0], tool.FormatCredits(x.Limit), window(per))
		}),
	}
	changeFlags(c, request)
	c.Flags().BoolVar(&soft, "soft", false, "warn, do not refuse")
	c.Flags().StringVar(&per, "per", "", "day or month [no period]")
	return c
}

func window(word string) string {
	if word == "" {
		return ""
	}
	return " a " + word
}

// creditRefund is refund and correct.
func (t commands) creditRefund(action string) *cobra.Command {
	x := &greylagv1.JobAdjustment{}
	request := &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_Refund{Refund: x}}
	var effective string
	short, long := "Refund a charge of a job", "Refunds part of a job's charges to the buckets that paid, most recent charges first: at\nmost what was spent and not refunded yet."
	if action == "correct" {
		request.Change = &greylagv1.ChangeCreditsRequest_Correct{Correct: x}
		short, long = "Charge a job more", "Charges a job more than its run time costs, from its account's credits; the rest becomes\ndebt. To charge less, refund."
	}
	c := &cobra.Command{
		Use: action + " JOB AMOUNT", Short: short, Long: long, Args: cobra.ExactArgs(2),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) (err error) {
			x.Job = args[0]
			if x.Amount, err = credits(args[1]); err != nil {
				return err
			}
			if x.Effective, err = t.ParseTime(effective); err != nil {
				return err
			}
			a, err := t.sendChange(ctx, c, request)
			if action == "correct" {
				return t.report(a, err, "job %s was charged %s more", args[0], tool.FormatCredits(a.GetCharged()))
			}
			return t.report(a, err, "%s of job %s refunded", tool.FormatCredits(a.GetReturned()), args[0])
		}),
	}
	changeFlags(c, request)
	c.Flags().Uint32Var(&x.Attempt, "attempt", 0, "attempt [the last one]")
	c.Flags().StringVar(&effective, "effective", "", "effective time [now]")
	c.Flags().Uint64Var(&x.Corrects, "entry", 0, "number of the journal entry that it corrects")
	return c
}

func (t commands) creditClose() *cobra.Command {
	x := &greylagv1.ClosePeriod{}
	request := &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_Close{Close: x}}
	c := &cobra.Command{
		Use: "close PERIOD", Short: "Close a day or a month", Args: cobra.ExactArgs(1),
		Long: "Closes everything before the end of a period, such as 2026-10 or 2026-10-31 (UTC): its\nreports no longer change, and later entries for it are marked late. Closing it again\nchanges nothing.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			end, err := accounting.PeriodEnd(args[0])
			if err != nil {
				return &ui.UsageError{Problem: err.Error(), Advice: "write a month like 2026-10, or a day like 2026-10-31"}
			}
			x.Period, x.End, request.Key = args[0], timestamppb.New(end), "close "+args[0]
			a, err := t.sendChange(ctx, c, request)
			return t.report(a, err, "%s is closed; the journal has %s, head %x", args[0], ui.Count(int64(a.GetEntries()), "entry"), a.GetHead())
		}),
	}
	noteFlag(c, request)
	return c
}
