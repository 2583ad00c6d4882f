package accounts

import (
	"math"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// The output of --json is a stable contract, documented in docs/man/json.md.

type accountJSON struct {
	Name         string            `json:"name"`
	Parent       string            `json:"parent,omitempty"`
	Description  string            `json:"description,omitempty"`
	Shares       int64             `json:"shares"`
	Coordinators []string          `json:"coordinators,omitempty"`
	QOS          []string          `json:"qos,omitempty"`
	DefaultQOS   string            `json:"default_qos,omitempty"`
	Limits       []string          `json:"limits,omitempty"`
	Users        []accountUserJSON `json:"users,omitempty"`
}

type accountUserJSON struct {
	User       string   `json:"user"`
	Partition  string   `json:"partition,omitempty"`
	Shares     int64    `json:"shares"`
	Default    bool     `json:"default,omitempty"`
	QOS        []string `json:"qos,omitempty"`
	DefaultQOS string   `json:"default_qos,omitempty"`
	Limits     []string `json:"limits,omitempty"`
}

func accountsOf(a *greylagv1.ListAccountsResponse) any {
	out := struct {
		Version  uint64        `json:"version"`
		Accounts []accountJSON `json:"accounts"`
	}{a.Version, []accountJSON{}}
	at := map[string]int{}
	for _, x := range a.Accounts {
		at[x.Name] = len(out.Accounts)
		out.Accounts = append(out.Accounts, accountJSON{
			Name: x.Name, Parent: x.Parent, Description: x.Description, Shares: x.Shares, Coordinators: x.Coordinators,
			QOS: x.Qos, DefaultQOS: x.DefaultQos, Limits: x.Limits,
		})
	}
	for _, u := range a.Users {
		if i, known := at[u.Account]; known {
			out.Accounts[i].Users = append(out.Accounts[i].Users, accountUserJSON{
				User: u.User, Partition: u.Partition, Shares: u.Shares, Default: u.Default, QOS: u.Qos, DefaultQOS: u.DefaultQos, Limits: u.Limits,
			})
		}
	}
	return out
}

type shareJSON struct {
	Account    string   `json:"account"`
	User       string   `json:"user,omitempty"`
	Partition  string   `json:"partition,omitempty"`
	Depth      int32    `json:"depth"`
	Shares     int64    `json:"shares"`
	NormShares float64  `json:"norm_shares"`
	Usage      float64  `json:"usage"` // billing seconds
	NormUsage  float64  `json:"norm_usage"`
	Effective  float64  `json:"effective_usage"`
	FairShare  *float64 `json:"fair_share,omitempty"`
	LevelFS    *float64 `json:"level_fs,omitempty"` // left out: infinite, or undefined
}

func sharesOf(a *greylagv1.ListSharesResponse) any {
	out := struct {
		Algorithm string      `json:"algorithm"`
		Shares    []shareJSON `json:"shares"`
	}{"fair-tree", []shareJSON{}}
	if a.Classic {
		out.Algorithm = "classic"
	}
	for _, x := range a.Shares {
		s := shareJSON{
			Account: x.Account, User: x.User, Partition: x.Partition, Depth: x.Depth, Shares: x.Shares, NormShares: x.NormShares,
			Usage: float64(x.Usage) / 1000, NormUsage: x.NormUsage, Effective: x.EffectiveUsage,
		}
		if x.User != "" || a.Classic {
			s.FairShare = &x.FairShare
		}
		if !a.Classic && x.Depth > 0 && x.Shares != cluster.SharesOfParent && !math.IsInf(x.LevelFs, 1) {
			s.LevelFS = &x.LevelFs
		}
		out.Shares = append(out.Shares, s)
	}
	return out
}

type priorityJSON struct {
	Job       uint64 `json:"id"`
	Ref       string `json:"ref"`
	User      string `json:"user"`
	Account   string `json:"account,omitempty"`
	Partition string `json:"partition"`
	QOS       string `json:"qos,omitempty"`
	Tier      int32  `json:"tier"`
	Priority  int64  `json:"priority"`
	Age       int64  `json:"age"`
	FairShare int64  `json:"fair_share"`
	JobSize   int64  `json:"job_size"`
	PartPart  int64  `json:"partition_part"`
	QOSPart   int64  `json:"qos_part"`
	Nice      int64  `json:"nice"`
	Over      string `json:"over_budget,omitempty"`
}

func prioritiesOf(a *greylagv1.ListPrioritiesResponse) any {
	out := struct {
		Jobs []priorityJSON `json:"jobs"`
	}{[]priorityJSON{}}
	for _, j := range a.Jobs {
		out.Jobs = append(out.Jobs, priorityJSON{
			j.Job, j.Ref, j.User, j.Account, j.Partition, j.Qos, j.Tier, j.Priority,
			j.Age, j.FairShare, j.JobSize, j.PartitionPart, j.QosPart, j.Nice, j.OverBudget,
		})
	}
	return out
}
