// Package accounts has the commands for accounts, their users, shares and the priority of jobs.
package accounts

import (
	"context"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
)

// commands holds the commands of this package in one run of gctl.
type commands struct{ *tool.Tool }

// Command returns gctl account.
func Command(t *tool.Tool) *cobra.Command { return commands{t}.account() }

// SharesCommand returns gctl shares.
func SharesCommand(t *tool.Tool) *cobra.Command { return commands{t}.shares() }

// PriorityCommand returns gctl priority.
func PriorityCommand(t *tool.Tool) *cobra.Command { return commands{t}.priority() }

func (t commands) account() *cobra.Command {
	c := &cobra.Command{
		Use: "account", Short: "Manage accounts, their users and limits", GroupID: tool.GroupAccounts, Args: tool.RequireSubcommand,
		Long: "Accounts are the tree of organisations and projects that share the cluster. Each\nhas shares among its siblings, limits, and users, who have shares and limits of\ntheir own. Without accounts all users may submit with equal shares.\n\n" + accountKeys,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(t.accountEdit("add", "NAME [user=U[,U...]] [KEY=VALUE...]", "Create an account, or add users to one"))
	c.AddCommand(t.accountEdit("modify", "NAME [user=U[,U...]] KEY=VALUE...", "Change an account, or users of one"))
	c.AddCommand(t.accountEdit("delete", "NAME [user=U[,U...]]", "Delete an account with its users, or users of one"))
	c.AddCommand(t.accountMove(), t.accountList(), t.accountDump(), t.accountLoad())
	c.PersistentFlags().BoolP("immediate", "i", false, "")
	tool.Must(c.PersistentFlags().MarkHidden("immediate")) // gctl never asks; sacctmgr -i has the same meaning
	return c
}

const accountKeys = `Keys:
  parent=NAME             parent account; root is the top of the tree
  shares=N|parent         shares among siblings, default 1 (also: fairshare);
                          parent: use the shares of the parent account
  user=U[,U...]           change these users of the account, not the account
  partition=P[,P...]      the users' associations for these partitions
  default=yes|no          make it the user's default account (also:
                          defaultaccount=NAME)
  coordinators=U[,U...]   may manage users of the account and its sub-accounts
  qos=Q[,Q...] defaultqos=Q
                          allowed QOS and default QOS; qos+=Q and qos-=Q
                          (also for coordinators) add to or remove from the list
  description=TEXT
Limits, named as in sacctmgr; -1 removes a limit:
  GrpTRES GrpTRESMins GrpTRESRunMins MaxTRESPerJob MaxTRESMinsPerJob MaxTRESPerNode
                          such as GrpTRES=gpu=64,gpu:h100=32,cpu=512,mem=4T,node=8
  GrpJobs GrpSubmitJobs MaxJobs MaxSubmitJobs
                          such as MaxJobs=10
  GrpWall MaxWall         such as MaxWall=2-00:00:00
Grp limits apply to an account with its sub-accounts in total, Max limits to
each job; MaxJobs and MaxSubmitJobs to each user.

sacctmgr syntax also works: modify user where name=ada account=physics set
maxjobs=3. Without account=, all associations of the user are changed or
deleted.
`

// accountEdit is add, modify or delete.
func (t commands) accountEdit(action, use, short string) *cobra.Command {
	return &cobra.Command{
		Use: action + " " + use, Short: short, Long: short + ".\n\n" + accountKeys, Args: cobra.MinimumNArgs(1),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			wanted, err := readAccountWords(action, args)
			if err != nil {
				return err
			}
			edits, version, err := t.editsOf(ctx, c, wanted)
			if err != nil {
				return err
			}
			return t.sendEdits(ctx, c, edits, version)
		}),
	}
}

// sendEdits makes edits, if the accounts still have a version; 0 is any.
func (t commands) sendEdits(ctx context.Context, c ui.Cluster, edits []*greylagv1.AccountEdit, version uint64) error {
	answer, err := c.Accounts().UpdateAccounts(ctx, &greylagv1.UpdateAccountsRequest{RequestId: client.NewRequestID(), Edits: edits, ExpectVersion: version})
	if err != nil {
		return err
	}
	if t.JSON {
		return t.WriteJSON(struct {
			Version  uint64   `json:"version"`
			Notes    []string `json:"notes,omitempty"`
			Warnings []string `json:"warnings,omitempty"`
		}{answer.Version, answer.Notes, answer.Warnings})
	}
	for _, e := range edits {
		what := "account " + e.Account
		if e.User != "" {
			what = e.User + " in " + what
		}
		if e.Partition != "" {
			what += " on partition " + e.Partition
		}
		t.Note("%s %s", what, map[string]string{"add": "added", "modify": "changed", "delete": "deleted"}[wire.Word(e.Action)])
	}
	for _, note := range answer.Notes {
		t.Note("%s", note)
	}
	for _, w := range answer.Warnings {
		t.Warn(w)
	}
	return nil
}

func (t commands) accountMove() *cobra.Command {
	return &cobra.Command{
		Use: "move NAME PARENT", Short: "Move an account to another parent", Args: cobra.ExactArgs(2),
		Long: "Moves an account to another parent, with its users, jobs, usage and all sub-accounts.\nThe root of the tree is root.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			return t.sendEdits(ctx, c, []*greylagv1.AccountEdit{{Action: greylagv1.AccountAction_ACCOUNT_ACTION_MODIFY, Account: args[0], Parent: &args[1]}}, 0)
		}),
	}
}
