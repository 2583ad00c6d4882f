package sacctmgr

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
)

// The fields of sacctmgr without format.
const (
	assocUsual   = "Cluster,Account,User,Partition,Share,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS"
	withAssoc    = ",Cluster,Account,Partition,Share,MaxJobs,MaxTRES,MaxSubmit,MaxWall,QOS,DefaultQOS"
	qosUsual     = "Name,Priority,Preempt,PreemptMode,UsageFactor,GrpTRES,GrpJobs,GrpWall,MaxTRES,MaxWall,MaxTRESPU,MaxJobsPU,MinTRES"
	clusterUsual = "Cluster,ControlHost,ControlPort,RPC,Share,QOS"
)

// limitNames are the limits that have a field of their own.
var limitNames = []string{
	"GrpJobs", "GrpTRES", "GrpSubmit", "GrpWall", "GrpTRESMins", "GrpTRESRunMins", "MaxJobs", "MaxTRES", "MaxTRESPerNode", "MaxSubmit", "MaxWall", "MaxTRESMins",
	"MaxTRESPU", "MaxJobsPU", "MaxTRESPA", "MaxJobsPA", "MinTRES",
}

func limitFields() (fields []slurmcmd.Field) {
	other := map[string]string{
		"GrpSubmit": "grpsubmitjobs", "MaxSubmit": "maxsubmitjobs", "MaxTRES": "maxtresperjob maxtrespj", "MaxWall": "maxwalldurationperjob", "MaxTRESPU": "maxtresperuser",
		"MaxJobsPU": "maxjobsperuser", "MaxTRESPA": "maxtresperaccount", "MaxJobsPA": "maxjobsperaccount", "MaxTRESMins": "maxtresminsperjob",
	}
	for _, name := range limitNames {
		fields = append(fields, slurmcmd.Field{Keys: strings.TrimSpace(strings.ToLower(name) + " " + other[name]), Title: name, Width: 13})
	}
	return fields
}

func setLimits(row map[string]string, limits []string) {
	aliases := map[string][]string{
		"grpsubmit": {"GrpSubmitJobs"}, "maxsubmit": {"MaxSubmitJobs"}, "maxtres": {"MaxTRESPerJob"}, "maxwall": {"MaxWallDurationPerJob"}, "maxtrespu": {"MaxTRESPerUser"},
		"maxjobspu": {"MaxJobsPerUser"}, "maxtrespa": {"MaxTRESPerAccount"}, "maxjobspa": {"MaxJobsPerAccount"}, "maxtresmins": {"MaxTRESMinsPerJob"},
	}
	for _, name := range limitNames {
		key := strings.ToLower(name)
		for _, word := range append([]string{name}, aliases[key]...) {
			row[key] = cmp.Or(row[key], limitOf(limits, word))
		}
	}
}

func assocFields(first ...slurmcmd.Field) []slurmcmd.Field {
	return append(append(first,
		slurmcmd.Field{Keys: "cluster", Title: "Cluster", Width: 10}, slurmcmd.Field{Keys: "account", Title: "Account", Width: 10}, slurmcmd.Field{Keys: "user", Title: "User", Width: 10},
		slurmcmd.Field{Keys: "parentname", Title: "Par Name", Width: 10}, slurmcmd.Field{Keys: "partition", Title: "Partition", Width: 10},
		slurmcmd.Field{Keys: "share fairshare", Title: "Share", Width: 9}, slurmcmd.Field{Keys: "qos", Title: "QOS", Width: 20}, slurmcmd.Field{Keys: "defaultqos", Title: "Def QOS", Width: 9},
		slurmcmd.Field{Keys: "coordinators", Title: "Coord Accounts", Width: 20}, slurmcmd.Field{Keys: "id", Title: "ID", Width: 6},
	), limitFields()...)
}

func entities() []entity {
	return []entity{
		{names: "users", fields: append([]slurmcmd.Field{{Keys: "user name", Title: "User", Width: 10}, {Keys: "defaultaccount", Title: "Def Acct", Width: 10}, {Keys: "adminlevel", Title: "Admin", Width: 9}}, assocFields()...),
			usual: "User,DefaultAccount,AdminLevel", assoc: "User,DefaultAccount,AdminLevel" + withAssoc, rows: (*data).users},
		{names: "accounts", fields: append([]slurmcmd.Field{{Keys: "account name", Title: "Account", Width: 10}, {Keys: "description", Title: "Descr", Width: 20}, {Keys: "organization", Title: "Org", Width: 20}}, assocFields()...),
			usual: "Account,Description,Organization", assoc: "Account,Description,Organization" + withAssoc, rows: (*data).accounts},
		{names: "associations", fields: assocFields(), usual: assocUsual, rows: (*data).associations},
		{names: "qos", fields: append([]slurmcmd.Field{
			{Keys: "name", Title: "Name", Width: 10}, {Keys: "priority", Title: "Priority", Width: 10}, {Keys: "preempt", Title: "Preempt", Width: 10}, {Keys: "preemptmode", Title: "PreemptMode", Width: 11},
			{Keys: "usagefactor", Title: "UsageFactor", Width: 11}, {Keys: "flags", Title: "Flags", Width: 20}, {Keys: "gracetime", Title: "GraceTime", Width: 10}, {Keys: "description", Title: "Descr", Width: 20},
		}, limitFields()...), usual: qosUsual, rows: (*data).qos},
		{names: "clusters", fields: append([]slurmcmd.Field{
			{Keys: "cluster name", Title: "Cluster", Width: 10}, {Keys: "controlhost", Title: "ControlHost", Width: 15}, {Keys: "controlport", Title: "ControlPort", Width: 12}, {Keys: "rpc", Title: "RPC", Width: 5},
		}, assocFields()[5:]...), usual: clusterUsual, rows: (*data).clusters},
		{names: "tres", fields: []slurmcmd.Field{{Keys: "type", Title: "Type", Width: 8}, {Keys: "name", Title: "Name", Width: 15}, {Keys: "id", Title: "ID", Width: 6}}, usual: "Type,Name,ID", rows: (*data).tres},
		{names: "coordinators", note: "gctl account list shows coordinators"}, {names: "events", note: "gctl audit shows changes of nodes"}, {names: "transactions", note: "gctl audit shows changes of accounts"},
		{names: "wckeys", note: "sacct -o WCKey shows them"}, {names: "runawayjobs", note: "there are none: one state holds the jobs"}, {names: "reservations", note: "scontrol show reservations"},
		{names: "resources", note: "scontrol show licenses"}, {names: "jobs", note: "sacct"}, {names: "problems", note: "gctl account list"}, {names: "stats", note: "gctl cluster status"},
		{names: "configuration", note: "scontrol show config"}, {names: "federations", note: "there is one cluster"}, {names: "instances", note: "there are no cloud instances"},
	}
}

// adminLevel returns the role of a user.
func (d *data) adminLevel(user string) string {
	switch {
	case slices.Contains(d.policy.Admins, user):
		return "Administrator"
	case slices.Contains(d.policy.Operators, user):
		return "Operator"
	}
	return "None"
}

func (d *data) userRow(u *greylagv1.AccountUser) map[string]string {
	row := map[string]string{
		"user": u.User, "adminlevel": d.adminLevel(u.User), "cluster": d.status.Cluster, "account": u.Account, "partition": u.Partition, "share": shareText(u.Shares),
		"qos": strings.Join(d.qosOf(u.Account, u.Qos), ","), "defaultqos": u.DefaultQos, "defaultaccount": d.defaultAccount(u.User),
	}
	setLimits(row, u.Limits)
	return row
}

// qosOf returns the QOS of a user, or of the next account above that has a list, or the open ones.
func (d *data) qosOf(account string, own []string) []string {
	for len(own) == 0 {
		i := slices.IndexFunc(d.Accounts, func(a *greylagv1.Account) bool { return a.Name == account })
		if i < 0 || account == "root" {
			break
		}
		own, account = d.Accounts[i].Qos, d.Accounts[i].Parent
	}
	if len(own) > 0 {
		return own
	}
	var open []string
	for _, q := range d.policy.QOS {
		if q.Open {
			open = append(open, q.Name)
		}
	}
	return open
}

func (d *data) defaultAccount(user string) string {
	for _, u := range d.Users {
		if u.User == user && u.Default {
			return u.Account
		}
	}
	return ""
}

func (d *data) users(associations bool) (rows []map[string]string) {
	seen := map[string]bool{}
	for _, u := range d.Users {
		if associations || !seen[u.User] {
			rows = append(rows, d.userRow(u))
		}
		seen[u.User] = true
	}
	return rows
}

func (d *data) accountRow(a *greylagv1.Account) map[string]string {
	row := map[string]string{
		"account": a.Name, "description": cmp.Or(a.Description, a.Name), "organization": cmp.Or(a.Parent, a.Name), "cluster": d.status.Cluster, "parentname": a.Parent, "share": shareText(a.Shares),
		"qos": strings.Join(d.qosOf(a.Name, a.Qos), ","), "defaultqos": a.DefaultQos, "coordinators": strings.Join(a.Coordinators, ","),
	}
	setLimits(row, a.Limits)
	return row
}

func (d *data) accounts(associations bool) (rows []map[string]string) {
	for _, a := range d.Accounts {
		rows = append(rows, d.accountRow(a))
		for _, u := range d.Users {
			if associations && u.Account == a.Name {
				row := d.userRow(u)
				row["description"], row["organization"] = cmp.Or(a.Description, a.Name), cmp.Or(a.Parent, a.Name)
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func (d *data) associations(bool) []map[string]string { return d.accounts(true) }

func (d *data) qos(bool) (rows []map[string]string) {
	for _, q := range d.policy.QOS {
		row := map[string]string{
			"name": q.Name, "priority": strconv.Itoa(int(q.Priority)), "preempt": strings.Join(q.Preempts, ","), "preemptmode": strings.ToLower(q.PreemptMode.String()),
			"usagefactor": fmt.Sprintf("%.6f", 1+float64(q.UsageExtra)/100), "gracetime": "00:00:00", "description": q.Name,
		}
		var limits []string
		for _, l := range q.Limits {
			limits = append(limits, l.String())
		}
		setLimits(row, limits)
		if q.MaxTime > 0 {
			row["maxwall"] = slurmcmd.LongLength(q.MaxTime)
		}
		rows = append(rows, row)
	}
	return rows
}

func (d *data) clusters(bool) []map[string]string {
	host, port, _ := strings.Cut(d.status.LeaderAddress, ":")
	return []map[string]string{{"cluster": d.status.Cluster, "controlhost": host, "controlport": port, "rpc": "10752", "share": "1", "qos": strings.Join(d.qosOf("", nil), ",")}}
}

func (d *data) tres(bool) (rows []map[string]string) {
	add := func(kind, name string, id int) {
		rows = append(rows, map[string]string{"type": kind, "name": name, "id": strconv.Itoa(id)})
	}
	for i, kind := range []string{"cpu", "mem", "energy", "node", "billing"} {
		add(kind, "", i+1)
	}
	add("gres", "gpu", 1001)
	for i, l := range d.policy.Scheduling.Licences {
		add("license", l.Name, 1100+i)
	}
	return rows
}
