package audit

import (
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// fieldList collects fields with their values, such as `nice 5`.
type fieldList []string

func (l *fieldList) addf(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

func (l *fieldList) text(name string, value *string) {
	if value != nil {
		l.addf("%s %q", name, sanitize(*value))
	}
}

func (l *fieldList) list(name string, value *[]string) {
	if value != nil {
		l.addf("%s %q", name, sanitize(strings.Join(*value, ",")))
	}
}

func (l *fieldList) number(name string, value *int32) {
	if value != nil {
		l.addf("%s %d", name, *value)
	}
}

func (l *fieldList) memory(name string, value *cluster.Bytes) {
	if value != nil {
		l.addf("%s %s", name, *value)
	}
}

func (l *fieldList) instant(name string, value *cluster.Instant) {
	switch {
	case value == nil:
	case *value == 0:
		l.addf("no %s", name)
	default:
		l.addf("%s %s", name, date(*value))
	}
}

func (l *fieldList) String() string { return shorten(strings.Join(*l, ", ")) }

// updateFields lists the fields that an update sets, such as `time 2:00:00, nice 5`.
func updateFields(c *command.UpdateJobs) string {
	var l fieldList
	if c.TimeLimit != nil {
		l.addf("time %s", cluster.FormatLimit(*c.TimeLimit))
	}
	if c.TimeLimitBy != 0 {
		sign := map[bool]string{false: "+", true: "-"}[c.TimeLimitBy < 0]
		l.addf("time %s%s", sign, cluster.FormatLimit(c.TimeLimitBy.Abs()))
	}
	l.text("partition", c.Partition)
	l.text("qos", c.QOS)
	l.text("account", c.Account)
	l.text("name", c.Name)
	l.number("nice", c.Nice)
	l.number("array limit", c.ArrayLimit)
	l.text("comment", c.Comment)
	l.instant("begin", c.Begin)
	l.instant("deadline", c.Deadline)
	if c.Depends != nil {
		l.addf("dependency %q", cluster.DependencyText(*c.Depends))
	}
	l.text("reservation", c.Reservation)
	l.number("nodes", c.Nodes)
	l.number("GPUs a node", c.GPUsPerNode)
	l.number("GPUs", c.GPUs)
	l.memory("memory a node", c.MemPerNode)
	l.memory("memory a CPU", c.MemPerCPU)
	l.memory("memory a GPU", c.MemPerGPU)
	l.list("nodelist", c.NodeList)
	l.list("features", c.Features)
	if c.Action == command.SetAdminComment {
		l.addf("admin comment of %d bytes", len(c.AdminComment))
	}
	if c.Action == command.RequeueHeldJobs {
		l.addf("held")
	}
	return l.String()
}

// accountEdits lists the edits, without their values where they were refused.
func accountEdits(c *command.EditAccounts, r command.Result) string {
	_, refused := r.(*command.Refusal)
	actions := map[command.AccountAction]string{
		command.AddAccount: "add", command.ModifyAccount: "modify", command.DeleteAccount: "delete", command.PutAccount: "put",
	}
	var list []string
	for i := range c.Edits {
		if i == maxAccounts {
			list = append(list, fmt.Sprintf("and %d more", len(c.Edits)-i))
			break
		}
		e := &c.Edits[i]
		text := strings.TrimSuffix(actions[e.Action]+" "+sanitize(e.Account)+"/"+sanitize(e.User), "/")
		if !refused {
			text += accountFields(e)
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// accountFields lists the fields that one valid edit sets, in parentheses.
func accountFields(e *command.AccountEdit) string {
	var l fieldList
	l.text("parent", e.Parent)
	l.text("description", e.Description)
	if e.Shares != nil {
		l.addf("shares %d", *e.Shares)
	}
	if e.Default != nil {
		l.addf("default %t", *e.Default)
	}
	l.list("coordinators", e.Coordinators)
	l.list("qos", e.QOS)
	l.text("default qos", e.DefaultQOS)
	for _, limit := range e.Set {
		l.addf("%s", sanitize(limit.String()))
	}
	for _, limit := range e.Unset {
		name := limit.String()
		l.addf("no %s", sanitize(name[:strings.LastIndexByte(name, '=')]))
	}
	if len(l) == 0 {
		return ""
	}
	return " (" + l.String() + ")"
}

// creditTerms lists the terms of a grant or a budget, the key and the note.
func creditTerms(c *command.ChangeCredits) (text string) {
	note := func(is bool, name string, value any) {
		if is {
			text += fmt.Sprintf(" %s=%v", name, value)
		}
	}
	list := func(name string, values []string) { note(len(values) > 0, name, sanitize(strings.Join(values, ","))) }
	note(c.Effective != 0, "from", date(c.Effective))
	switch c.Action {
	case command.SetBudget:
		note(c.Window != accounting.Ever, "window", map[accounting.Window]string{accounting.Daily: "day", accounting.Monthly: "month"}[c.Window])
		note(true, "hard", c.Hard)
	case command.GrantCredits:
		note(c.Class == accounting.Purchase, "class", "purchase")
		note(c.Class == accounting.Promo, "class", "promo")
		note(c.Expires != 0, "expires", date(c.Expires))
		note(c.Priority != 0, "priority", c.Priority)
		note(c.Cutoff, "cutoff", c.Cutoff)
		note(c.Code != "", "code", sanitize(c.Code))
		note(c.Code != "", "redeems", c.Redeems)
		list("gpu-types", c.Scope.GPUTypes)
		list("partitions", c.Scope.Partitions)
		list("qos", c.Scope.QOS)
		note(c.Scope.Permille != 0, "share", fmt.Sprintf("%d/1000", c.Scope.Permille))
		note(c.Scope.PerJob != 0, "per-job", c.Scope.PerJob)
	}
	note(c.Key != "", "key", sanitize(c.Key))
	note(c.Note != "", "note", sanitize(c.Note))
	return text
}
