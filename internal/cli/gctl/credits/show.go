package credits

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/gsubmit"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
)

func (t commands) creditBalance() *cobra.Command {
	request := &greylagv1.ListBalancesRequest{Job: &greylagv1.BucketScope{}}
	c := &cobra.Command{
		Use: "balance [ACCOUNT...]", Short: "Show balances", Aliases: []string{"show", "list"},
		Long: `Prints what accounts and their users have of their own, what is set aside for
jobs, what was spent and is owed, including sub-accounts, and the usable
amount for a new job: with the credits of the parent accounts, within every
budget. UPCOMING is the total of grants that begin later. Credits with a scope
count as usable, unless you name a GPU type, partition or QOS outside their
scope. gsubmit --quote prints the exact amount for one job. Deleted accounts
and users without a balance are shown by name and with --deleted.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			request.Accounts = args
			a, err := c.Credits().ListBalances(ctx, request)
			if err != nil {
				return err
			}
			if request.User != "" && len(a.Balances) == 0 {
				t.Warn(fmt.Sprintf("no grants or charges of user %q in these accounts", request.User))
			}
			if t.JSON {
				return t.WriteJSON(balancesOf(a))
			}
			if !a.Charging {
				t.Note("jobs are not charged: the policy has [credits] enabled = false")
			}
			if request.Buckets {
				return t.WriteTable(t.bucketTable(a.Balances))
			}
			return t.WriteTable(balanceTable(a.Balances))
		}),
	}
	c.Flags().StringVarP(&request.User, "user", "u", "", "only this user")
	c.Flags().BoolVarP(&request.Buckets, "buckets", "b", false, "each grant and its balance")
	c.Flags().BoolVar(&request.Deleted, "deleted", false, "include deleted accounts and users")
	c.Flags().StringSliceVar(&request.Job.GpuTypes, "gpu-types", nil, "amount usable for a job with these types")
	c.Flags().StringSliceVar(&request.Job.Partitions, "partitions", nil, "amount usable for a job in these partitions")
	c.Flags().StringSliceVar(&request.Job.Qos, "qos", nil, "amount usable for a job of this QOS")
	return c
}

func balanceTable(list []*greylagv1.Balance) ui.Table {
	table := ui.Table{
		Head: []string{"ACCOUNT", "USER", "OWN", "HELD", "SPENT", "DEBT", "BUDGET", "USABLE"}, Right: "llrrrrrr", Wide: []int{0, 1},
	}
	upcoming := slices.ContainsFunc(list, func(b *greylagv1.Balance) bool { return b.Upcoming > 0 })
	if upcoming {
		table.Head, table.Right = slices.Insert(table.Head, 3, "UPCOMING"), "llrrrrrrr"
	}
	for _, b := range list {
		budget := "-"
		if b.Limit > 0 {
			if budget = tool.FormatCredits(b.Limit); b.Window != greylagv1.BudgetWindow_BUDGET_WINDOW_UNSPECIFIED {
				budget += "/" + wire.Word(b.Window)
			}
			if !b.Hard {
				budget += " soft"
			}
		}
		usable := tool.FormatCredits(b.Usable)
		if b.Deleted {
			usable = "deleted"
		}
		row := []string{b.Account, b.User, tool.FormatCredits(b.Available), tool.FormatCredits(b.Held), tool.FormatCredits(b.Spent), tool.FormatCredits(b.Debt), budget, usable}
		if upcoming {
			row = slices.Insert(row, 3, tool.FormatCredits(b.Upcoming))
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

func (t commands) bucketTable(list []*greylagv1.Balance) ui.Table {
	table := ui.Table{
		Head:  []string{"BUCKET", "OWNER", "CLASS", "PRI", "GRANTED", "LEFT", "HELD", "SPENT", "LOST", "EXPIRES"},
		Right: "rllrrrrrrl", Wide: []int{1},
	}
	scoped, upcoming := false, false
	for _, b := range list {
		upcoming = upcoming || slices.ContainsFunc(b.Buckets, (*greylagv1.Bucket).GetUpcoming)
		scoped = scoped || slices.ContainsFunc(b.Buckets, func(x *greylagv1.Bucket) bool { return paysFor(x) != "" })
	}
	if upcoming {
		table.Head, table.Right = append(table.Head, "FROM"), table.Right+"l"
	}
	if scoped {
		table.Head, table.Right, table.Wide = append(table.Head, "FOR"), table.Right+"l", []int{1, len(table.Head)}
	}
	for _, b := range list {
		for _, x := range b.Buckets {
			owner := b.Account
			if b.User != "" {
				owner += "/" + b.User
			}
			expires := "-"
			if x.Expires != nil {
				expires = x.Expires.AsTime().In(t.Now().Location()).Format("2006-01-02")
				if !x.Expires.AsTime().After(t.Now()) {
					expires = "expired " + expires
				}
			}
			row := []string{
				strconv.FormatUint(x.Id, 10), owner, wire.Word(x.Class), strconv.Itoa(int(x.Priority)), tool.FormatCredits(x.Amount), tool.FormatCredits(x.Available),
				tool.FormatCredits(x.Held), tool.FormatCredits(x.Spent), tool.FormatCredits(x.Expired + x.Voided), expires,
			}
			switch {
			case x.Upcoming:
				row = append(row, t.FormatMinute(x.Effective.AsTime()))
			case upcoming:
				row = append(row, "")
			}
			if scoped {
				row = append(row, paysFor(x))
			}
			table.Rows = append(table.Rows, row)
		}
	}
	return table
}

// paysFor describes the scope of a bucket, in the options of a grant; "" for everything.
func paysFor(x *greylagv1.Bucket) string {
	var words []string
	for _, part := range []struct {
		name string
		of   []string
	}{{"gpu-types", x.GetScope().GetGpuTypes()}, {"partitions", x.GetScope().GetPartitions()}, {"qos", x.GetScope().GetQos()}} {
		if len(part.of) > 0 {
			words = append(words, part.name+"="+strings.Join(part.of, ","))
		}
	}
	if p := x.GetScope().GetPermille(); p > 0 {
		words = append(words, "share="+percent(p))
	}
	if p := x.GetScope().GetPerJob(); p > 0 {
		words = append(words, "per-job="+tool.FormatCredits(p))
	}
	return strings.Join(words, " ")
}

type balanceJSON struct {
	Account       string       `json:"account"`
	User          string       `json:"user,omitempty"`
	Parent        string       `json:"parent,omitempty"`
	Deleted       bool         `json:"deleted,omitempty"`
	Available     string       `json:"available"`
	Upcoming      string       `json:"upcoming,omitempty"`
	Usable        string       `json:"usable"`
	Held          string       `json:"held"`
	Spent         string       `json:"spent"`
	Debt          string       `json:"debt"`
	Limit         string       `json:"limit,omitempty"`
	Used          string       `json:"used,omitempty"`
	Mode          string       `json:"mode,omitempty"`
	Window        string       `json:"window,omitempty"`
	ByClass       classesJSON  `json:"by_class"`
	ExpiringWeek  string       `json:"expiring_7d"`
	ExpiringMonth string       `json:"expiring_30d"`
	Buckets       []bucketJSON `json:"buckets,omitempty"`
}

type classesJSON struct {
	Purchase string `json:"purchase"`
	Grant    string `json:"grant"`
	Promo    string `json:"promo"`
	Refund   string `json:"refund"`
}

type bucketJSON struct {
	ID        uint64     `json:"id"`
	Class     string     `json:"class"`
	Amount    string     `json:"amount"`
	Available string     `json:"available"`
	Held      string     `json:"held"`
	Spent     string     `json:"spent"`
	Expired   string     `json:"expired"`
	Voided    string     `json:"voided"`
	Effective *time.Time `json:"effective,omitempty"`
	Expires   *time.Time `json:"expires,omitempty"`
	Priority  int32      `json:"priority"`
	GPUTypes  []string   `json:"gpu_types,omitempty"`
	Partition []string   `json:"partitions,omitempty"`
	QOS       []string   `json:"qos,omitempty"`
	Share     string     `json:"share,omitempty"`
	PerJob    string     `json:"per_job,omitempty"`
	Cutoff    bool       `json:"cutoff,omitempty"`
	Upcoming  bool       `json:"upcoming,omitempty"`
}

// balancesOf returns the JSON of balances: amounts are decimal strings.
func balancesOf(a *greylagv1.ListBalancesResponse) any {
	d := func(c int64) string { return accounting.Credits(c).String() }
	out := struct {
		Balances []balanceJSON `json:"balances"`
		Entries  uint64        `json:"entries"`
		Charging bool          `json:"charging"`
	}{[]balanceJSON{}, a.Entries, a.Charging}
	for _, b := range a.Balances {
		x := balanceJSON{
			Account: b.Account, User: b.User, Parent: b.Parent, Deleted: b.Deleted, Available: d(b.Available), Usable: d(b.Usable), Held: d(b.Held), Spent: d(b.Spent), Debt: d(b.Debt),
			Window: wire.Word(b.Window), ByClass: classesJSON{d(b.Purchased), d(b.Granted), d(b.Promoted), d(b.Refunded)}, ExpiringWeek: d(b.ExpiringWeek), ExpiringMonth: d(b.ExpiringMonth),
		}
		if b.Upcoming > 0 {
			x.Upcoming = d(b.Upcoming)
		}
		if b.Limit > 0 {
			x.Limit, x.Used, x.Mode = d(b.Limit), d(b.Used), "soft"
			if b.Hard {
				x.Mode = "hard"
			}
		}
		for _, k := range b.Buckets {
			scope := k.GetScope()
			bucket := bucketJSON{
				ID: k.Id, Class: wire.Word(k.Class), Amount: d(k.Amount), Available: d(k.Available), Held: d(k.Held), Spent: d(k.Spent), Expired: d(k.Expired), Voided: d(k.Voided),
				Effective: tool.Timestamp(k.Effective), Expires: tool.Timestamp(k.Expires), Priority: k.Priority,
				GPUTypes: scope.GetGpuTypes(), Partition: scope.GetPartitions(), QOS: scope.GetQos(), Cutoff: k.Cutoff, Upcoming: k.Upcoming,
			}
			if p := scope.GetPermille(); p > 0 {
				bucket.Share = percent(p)
			}
			if p := scope.GetPerJob(); p > 0 {
				bucket.PerJob = d(p)
			}
			x.Buckets = append(x.Buckets, bucket)
		}
		out.Balances = append(out.Balances, x)
	}
	return out
}

func (t commands) creditStatement() *cobra.Command {
	var from, to string
	var all bool
	c := &cobra.Command{
		Use: "statement ACCOUNT[/USER]", Short: "Show the entries of an account", Args: cobra.ExactArgs(1),
		Long: `Prints grants to an account and its sub-accounts, charges of their jobs, and
expiries, with the balance before and after. --all includes liens and
releases. An entry is followed by its key and note; the last charge of a job
with several GPU prices by its bill: time, price, GPUs and amount.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) (err error) {
			request := &greylagv1.StreamStatementRequest{}
			if request.Account, request.User, err = payer(args[0]); err != nil {
				return err
			}
			if request.From, err = t.ParseTime(from); err != nil {
				return err
			}
			if request.Before, err = t.ParseTime(to); err != nil {
				return err
			}
			return t.statement(ctx, c, request, all)
		}),
	}
	c.Flags().StringVarP(&from, "from", "S", "", "start time [the beginning]")
	c.Flags().StringVarP(&to, "to", "E", "", "end time, exclusive [now]")
	c.Flags().BoolVar(&all, "all", false, "include liens and releases")
	return c
}

// lineJSON is one entry, one line of JSON each.
type lineJSON struct {
	Seq      uint64     `json:"seq,omitempty"`
	At       *time.Time `json:"at,omitempty"`
	Kind     string     `json:"kind"`
	Account  string     `json:"account,omitempty"`
	User     string     `json:"user,omitempty"`
	Job      uint64     `json:"job,omitempty"`
	Attempt  uint32     `json:"attempt,omitempty"`
	Bucket   uint64     `json:"bucket,omitempty"`
	Moved    string     `json:"moved,omitempty"`
	Amount   string     `json:"amount,omitempty"`
	Balance  string     `json:"balance"`
	Corrects uint64     `json:"corrects,omitempty"`
	Late     bool       `json:"late,omitempty"`
	Key      string     `json:"key,omitempty"`
	Note     string     `json:"note,omitempty"`
	Bill     []billJSON `json:"bill,omitempty"`
}

// billJSON is GPUs of one type of a job at one price.
type billJSON struct {
	Type     string     `json:"gpu_type"`
	GPUs     int64      `json:"gpus"`
	Price    string     `json:"price"`
	Since    *time.Time `json:"since"`
	GPUHours float64    `json:"gpu_hours"`
	Cost     string     `json:"cost"`
}

// billRows follow the last charge of an attempt with several prices.
func (t commands) billRows(e *greylagv1.JournalEntry) (rows [][]string) {
	for _, b := range e.Bill {
		rows = append(rows, []string{"  " + t.FormatTime(b.Since), "  at", tool.FormatCredits(b.Price), fmt.Sprintf("%dx%s", b.Gpus, b.GpuType), tool.FormatCredits(b.Cost), "", ""})
	}
	return rows
}

// saidRows follow an entry with a key or a note.
func saidRows(e *greylagv1.JournalEntry) (rows [][]string) {
	if e.Named {
		rows = append(rows, []string{"", "  key", e.Key})
	}
	if e.Note != "" {
		rows = append(rows, []string{"", "  note", e.Note})
	}
	return rows
}

func billOf(e *greylagv1.JournalEntry) (all []billJSON) {
	for _, b := range e.Bill {
		all = append(all, billJSON{b.GpuType, b.Gpus, accounting.Credits(b.Price).String(), tool.Timestamp(b.Since), float64(b.GpuMs) / 3_600_000, accounting.Credits(b.Cost).String()})
	}
	return all
}

func (t commands) statement(ctx context.Context, c ui.Cluster, request *greylagv1.StreamStatementRequest, all bool) error {
	stream, err := c.Credits().StreamStatement(ctx, request)
	if err != nil {
		return err
	}
	defer stream.Close()
	table := ui.Table{Head: []string{"TIME", "KIND", "WHO", "JOB", "MOVED", "AMOUNT", "BALANCE"}, Right: "lllrrrr", Wide: []int{2}}
	lines := []lineJSON{}
	balance, word := int64(0), "opening"
	for stream.Receive() {
		e := stream.Msg().GetEntry()
		if e == nil {
			balance = stream.Msg().GetBalance()
			table.Rows = append(table.Rows, []string{"", word, "", "", "", "", tool.FormatCredits(balance)})
			lines = append(lines, lineJSON{Kind: word, Balance: accounting.Credits(balance).String()})
			word = "closing"
			continue
		}
		balance += e.Amount
		if !all && (wire.Word(e.Kind) == accounting.SetAside.String() || wire.Word(e.Kind) == accounting.Released.String()) {
			continue
		}
		who, job := strings.TrimSuffix(e.Account+"/"+e.User, "/"), ""
		if e.Job > 0 {
			job = fmt.Sprintf("%d.%d", e.Job, e.Attempt)
		}
		table.Rows = append(table.Rows, []string{
			t.FormatTime(e.At), wire.Word(e.Kind), who, job, tool.FormatCredits(e.Moved), tool.FormatCredits(e.Amount), tool.FormatCredits(balance),
		})
		lines = append(lines, lineJSON{
			e.Seq, tool.Timestamp(e.At), wire.Word(e.Kind), e.Account, e.User, e.Job, e.Attempt, e.Bucket, accounting.Credits(e.Moved).String(),
			accounting.Credits(e.Amount).String(), accounting.Credits(balance).String(), e.Corrects, e.Late, e.Key, e.Note, billOf(e),
		})
		table.Rows = append(table.Rows, saidRows(e)...)
		if len(e.Bill) > 1 {
			table.Rows = append(table.Rows, t.billRows(e)...)
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if t.JSON {
		return t.WriteJSON(lines)
	}
	return t.WriteTable(table)
}

func (t commands) creditPrice() *cobra.Command {
	x, list := &greylagv1.SetPrice{}, &greylagv1.ListPricesRequest{}
	request := &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_SetPrice{SetPrice: x}}
	var start string
	c := &cobra.Command{
		Use: "price [TYPE AMOUNT]", Short: "Show or set the price of a GPU hour",
		Long: "Prints the price of a GPU hour of each type, or sets it from now or from a later time\non. Submitted jobs keep their quoted price, unless the policy has prices = \"day\": then\neach hour is charged at the price in force then.",
		Args: cobra.RangeArgs(0, 2),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) (err error) {
			if len(args) == 2 {
				x.GpuType = strings.ToLower(args[0])
				if x.Price, err = credits(args[1]); err != nil {
					return err
				}
				if x.Effective, err = t.ParseTime(start); err != nil {
					return err
				}
				a, err := t.sendChange(ctx, c, request)
				from := ""
				if x.Effective.AsTime().After(t.Now()) {
					from = " from " + t.FormatTime(x.Effective) + " on"
				}
				return t.report(a, err, "the price of %s is %s per hour%s", x.GpuType, tool.FormatCredits(x.Price), from)
			}
			a, err := c.Credits().ListPrices(ctx, list)
			if err != nil {
				return err
			}
			var shown []*greylagv1.Price
			for _, p := range a.Prices {
				if len(args) == 0 || p.GpuType == args[0] {
					shown = append(shown, p)
				}
			}
			return t.prices(shown)
		}),
	}
	changeFlags(c, request)
	c.Flags().StringVar(&start, "from", "", "start time [now]")
	c.Flags().BoolVar(&list.History, "history", false, "include earlier prices")
	return c
}

func (t commands) prices(list []*greylagv1.Price) error {
	if t.JSON {
		type priceJSON struct {
			GPUType  string     `json:"gpu_type"`
			Price    string     `json:"price"`
			From     *time.Time `json:"from"`
			Upcoming bool       `json:"upcoming,omitempty"`
		}
		all := []priceJSON{}
		for _, p := range list {
			all = append(all, priceJSON{p.GpuType, accounting.Credits(p.Price).String(), tool.Timestamp(p.From), p.Upcoming})
		}
		return t.WriteJSON(all)
	}
	if len(list) == 0 {
		t.Note("no prices are set: use gctl credit price TYPE AMOUNT")
		return nil
	}
	table := ui.Table{Head: []string{"TYPE", "PRICE", "FROM"}, Right: "lrl"}
	for _, p := range list {
		from := t.FormatTime(p.From)
		if p.Upcoming {
			from += " (upcoming)"
		}
		table.Rows = append(table.Rows, []string{p.GpuType, tool.FormatCredits(p.Price), from})
	}
	return t.WriteTable(table)
}

func (t commands) creditQuote() *cobra.Command {
	return &cobra.Command{
		Use: "quote [OPTIONS] SCRIPT", Short: "Quote a job: gsubmit --quote", DisableFlagParsing: true,
		Long: "Prints the lien of a job if it were submitted now, the prices, and whether it would be\naccepted. The options are those of gsubmit; nothing is submitted.",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
				return c.Help()
			}
			p := *t.Process
			p.Args = append([]string{"--quote"}, args...)
			if status := gsubmit.Run(c.Context(), &p); status != 0 {
				return ui.Exit(ui.Status(status))
			}
			return nil
		},
	}
}
