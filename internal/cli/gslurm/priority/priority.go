// Package priority shows fair shares and priorities under Slurm's names: sshare and sprio.
//
// It decides how the shares and the factors of priorities are written in their columns.
package priority

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

func row(long string, short byte, value string, effect slurmcmd.Effect, note, help string, aliases ...string) slurmcmd.Option {
	return slurmcmd.Option{Option: getopt.Option{Long: long, Short: short, Value: value, Aliases: aliases, Help: help}, Effect: effect, Note: note}
}

const same, nothing, refused = slurmcmd.Same, slurmcmd.Nothing, slurmcmd.Refused

// SshareProgram is the description of sshare.
func SshareProgram() slurmcmd.Program {
	return slurmcmd.Program{
		Name: "sshare", Usage: "[OPTIONS]", Summary: "Shows fair shares.",
		Options: []slurmcmd.Option{
			row("Users", 'U', "", same, "", "only users, not their accounts"),
			row("accounts", 'A', "ACCOUNTS", same, "", "these accounts"),
			row("all", 'a', "", same, "", "all users"),
			row("clusters", 'M', "NAMES", nothing, "there is one cluster", ""),
			row("format", 'o', "FIELDS", same, "", "columns: Account,User%20,FairShare"),
			row("helpformat", 'e', "", same, "", "list the fields"),
			{Option: getopt.Option{Long: "json", Value: "PARSER", Absent: "list"}, Effect: refused, Note: "-P prints fields separated by bars; gctl share --json prints JSON"},
			row("long", 'l', "", same, "", "more columns"),
			row("noheader", 'n', "", same, "", "no header line", "noheaders"),
			row("parsable", 'p', "", same, "", "fields separated by |, with one at the end"),
			row("parsable2", 'P', "", same, "", "fields separated by |"),
			row("partition", 'm', "", same, "", "show the partition of an association"),
			row("users", 'u', "USERS", same, "", "these users", "uid"),
			row("verbose", 'v', "", nothing, "it only prints more", ""),
			{Option: getopt.Option{Long: "yaml", Value: "PARSER", Absent: "list"}, Effect: refused, Note: "-P prints fields separated by bars"},
		},
	}
}

func shareFields() []slurmcmd.Field {
	return []slurmcmd.Field{
		{Keys: "account", Title: "Account", Width: -20}, {Keys: "user", Title: "User", Width: 10}, {Keys: "partition", Title: "Partition", Width: 12},
		{Keys: "rawshares", Title: "RawShares", Width: 10}, {Keys: "normshares", Title: "NormShares", Width: 11}, {Keys: "rawusage", Title: "RawUsage", Width: 11},
		{Keys: "normusage", Title: "NormUsage", Width: 11}, {Keys: "effectvusage", Title: "EffectvUsage", Width: 13}, {Keys: "fairshare", Title: "FairShare", Width: 10},
		{Keys: "levelfs", Title: "LevelFS", Width: 10}, {Keys: "cluster", Title: "Cluster", Width: 10}, {Keys: "id", Title: "ID", Width: 6},
		{Keys: "grptresmins", Title: "GrpTRESMins", Width: 30}, {Keys: "tresrunmins", Title: "TRESRunMins", Width: 30}, {Keys: "grptresraw", Title: "GrpTRESRaw", Width: 30},
	}
}

// command is one run of sshare or sprio.
type command struct{ *slurmcmd.Command }

// RunSshare runs sshare and returns its exit status.
func RunSshare(ctx context.Context, p *ui.Process) int {
	c := command{slurmcmd.New(p, SshareProgram())}
	return c.Finish(ctx, slurmcmd.Unreachable("sshare: error: ", c.share(ctx)))
}

// question is which shares are shown.
type question struct {
	accounts, users []string
	all, onlyUsers  bool
}

func (c command) share(ctx context.Context) error {
	found, done, err := c.ParseOptions("select accounts with -A, users with -u")
	if err != nil || done {
		return err
	}
	q, style, format := question{}, slurmcmd.ReportStyle{}, "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
	long := "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,GrpTRESMins,TRESRunMins"
	for _, f := range found {
		switch f.Option.Long {
		case "Users":
			q.onlyUsers = true
		case "accounts":
			q.accounts = append(q.accounts, strings.Split(f.Value, ",")...)
		case "users":
			q.users = append(q.users, strings.Split(f.Value, ",")...)
		case "all":
			q.all = true
		case "format":
			format, long = f.Value, f.Value
		case "long":
			format = long
		case "partition":
			format = strings.Replace(format, "User,", "User,Partition,", 1)
		case "noheader":
			style.NoHeader = true
		case "parsable":
			style.Parsable, style.End = true, true
		case "parsable2":
			style.Parsable = true
		case "helpformat":
			for _, f := range shareFields() {
				err = c.Write(f.Title + "\n")
			}
			return err
		}
	}
	report := slurmcmd.Report{Fields: shareFields()}
	if err := report.Choose(format); err != nil {
		return err
	}
	_, cl, err := c.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	answer, err := cl.Accounts().ListShares(ctx, &greylagv1.ListSharesRequest{Accounts: q.accounts})
	if err != nil {
		return err
	}
	report.Rows = q.rows(answer.Shares, slurmcmd.UserName())
	return report.Print(c.Command, style)
}

// rows selects shares: accounts, and of users only the caller unless others are asked for.
func (q question) rows(shares []*greylagv1.Share, me string) (rows []map[string]string) {
	for _, s := range shares {
		switch {
		case s.User == "" && q.onlyUsers,
			s.User != "" && len(q.users) > 0 && !slices.Contains(q.users, s.User),
			s.User != "" && len(q.users) == 0 && !q.all && s.User != me:
			continue
		}
		raw := "parent"
		if s.Shares >= 0 {
			raw = strconv.FormatInt(s.Shares, 10)
		}
		level := "inf"
		if !math.IsInf(s.LevelFs, 0) {
			level = fmt.Sprintf("%.6f", s.LevelFs)
		}
		account := s.Account
		if !q.onlyUsers {
			account = strings.Repeat(" ", int(s.Depth)) + s.Account
		}
		row := map[string]string{
			"account": account, "user": s.User, "partition": s.Partition, "rawshares": raw, "normshares": fmt.Sprintf("%.6f", s.NormShares),
			"rawusage": strconv.FormatInt(s.Usage/1000, 10), "normusage": fmt.Sprintf("%.6f", s.NormUsage), "effectvusage": fmt.Sprintf("%.6f", s.EffectiveUsage), "levelfs": level,
		}
		if s.User != "" {
			row["fairshare"] = fmt.Sprintf("%.6f", s.FairShare)
		}
		rows = append(rows, row)
	}
	return rows
}
