package report

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/pkg/cluster"
)

// Row is the total of jobs with the same key.
type Row struct {
	tally.Key
	tally.Tally
}

// Reports lists the names of the usage reports.
func Reports() []string {
	return []string{"usage", "jobs", "users", "accounts", "wckeys", "efficiency", "promises"}
}

// Make builds the named report of one period; it returns false for an unknown name.
func Make(name string, rows []Row) (Table, bool) {
	switch name {
	case "usage":
		return usage(rows), true
	case "jobs":
		return jobs(rows), true
	case "users":
		return people("users", rows, func(k tally.Key) tally.Key { return tally.Key{User: k.User} }), true
	case "accounts":
		return people("accounts", rows, func(k tally.Key) tally.Key { return tally.Key{Account: k.Account, User: k.User} }), true
	case "wckeys":
		return people("wckeys", rows, func(k tally.Key) tally.Key { return tally.Key{WCKey: k.WCKey} }), true
	case "efficiency":
		return efficiency(rows), true
	case "promises":
		return promises(rows), true
	}
	return Table{}, false
}

// group adds up rows with the same key by by, in the order of keys.
func group(rows []Row, by func(tally.Key) tally.Key) []Row {
	at := make(map[tally.Key]int)
	var out []Row
	for i := range rows {
		k := by(rows[i].Key)
		n, known := at[k]
		if !known {
			n = len(out)
			at[k], out = n, append(out, Row{Key: k})
		}
		out[n].Add(&rows[i].Tally)
	}
	slices.SortFunc(out, func(a, b Row) int { return a.Key.Compare(b.Key) })
	return out
}

func texts(names ...string) []Column {
	out := make([]Column, len(names))
	for i, n := range names {
		out[i] = Column{Name: n, Digits: Text}
	}
	return out
}

func numbers(digits int, names ...string) []Column {
	out := make([]Column, len(names))
	for i, n := range names {
		out[i] = Column{Name: n, Digits: digits}
	}
	return out
}

// details returns number columns that only the machine formats have.
func details(digits int, names ...string) []Column {
	out := numbers(digits, names...)
	for i := range out {
		out[i].Detail = true
	}
	return out
}

// seldom returns number columns that the text shows only if they have values.
func seldom(digits int, names ...string) []Column {
	out := numbers(digits, names...)
	for i := range out {
		out[i].Seldom = true
	}
	return out
}

func columns(parts ...[]Column) []Column { return slices.Concat(parts...) }

// quantile returns a wait in seconds; null if no job waited.
func quantile(t *tally.Tally, percent int64) Value {
	if t.Wait.Len() == 0 {
		return None()
	}
	return Number(int64(t.Wait.Quantile(percent).Seconds()))
}

// usage returns the most detailed report of usage.
func usage(rows []Row) Table {
	t := Table{Name: "usage", Columns: columns(
		texts("account", "user", "partition", "qos", "gpu_type"), numbers(0, "jobs"),
		numbers(3, "gpu_hours", "cpu_hours"), details(3, "node_hours", "lost_fault", "lost_preempt"), details(0, "wait_p50_s"), numbers(0, "wait_p95_s"),
	)}
	for _, r := range group(rows, func(k tally.Key) tally.Key { k.WCKey = ""; return k }) {
		t.Rows = append(t.Rows, row(
			r.Account, r.User, r.Partition, r.QOS, r.GPUType, r.All(), hours(r.GPU), hours(r.CPU), hours(r.Node),
			hours(r.Fault), hours(r.Preempt), quantile(&r.Tally, 50), quantile(&r.Tally, 95),
		))
	}
	return t
}

// jobs returns the report of job outcomes.
func jobs(rows []Row) Table {
	t := Table{Name: "jobs", Columns: columns(
		texts("partition", "qos", "gpu_type"),
		numbers(0, "jobs", "completed", "failed"), seldom(0, "cancelled", "timeout", "deadline", "preempted", "node_fail", "out_of_memory"),
		details(0, "attempts", "wait_p50_s"), numbers(0, "wait_p95_s"), details(1, "gpu_used_percent"),
	)}
	for _, r := range group(rows, func(k tally.Key) tally.Key {
		return tally.Key{Partition: k.Partition, QOS: k.QOS, GPUType: k.GPUType}
	}) {
		if r.All()+r.Attempts == 0 {
			continue
		}
		cells := row(r.Partition, r.QOS, r.GPUType, r.All())
		for s := cluster.Completed; s <= cluster.OutOfMemory; s++ {
			cells = append(cells, Number(r.Jobs(s)))
		}
		t.Rows = append(t.Rows, append(cells, row(
			r.Attempts, quantile(&r.Tally, 50), quantile(&r.Tally, 95), percent(r.GPUBusy, r.GPUKnown))...))
	}
	return t
}

// people returns the report of the largest users, or of the workload keys with the highest usage.
func people(name string, rows []Row, by func(tally.Key) tally.Key) Table {
	t := Table{Name: name, Columns: columns(
		texts("user"), numbers(0, "jobs"), numbers(3, "gpu_hours"), numbers(1, "gpu_percent"), numbers(3, "cpu_hours"), details(3, "node_hours", "lost_fault", "lost_preempt"), numbers(6, "charged"),
	)}
	switch name {
	case "wckeys":
		t.Columns[0].Name = "wckey"
	case "accounts":
		t.Columns = slices.Insert(t.Columns, 0, Column{Name: "account", Digits: Text})
	}
	groups, total := group(rows, by), int64(0)
	for i := range groups {
		total += groups[i].GPU
	}
	slices.SortStableFunc(groups, func(a, b Row) int {
		if name == "accounts" && a.Account != b.Account {
			return 0
		}
		return cmp.Or(cmp.Compare(b.GPU, a.GPU), cmp.Compare(b.CPU, a.CPU))
	})
	for _, r := range groups {
		cells := row(cmp.Or(r.WCKey, r.User), r.All(), hours(r.GPU), percent(r.GPU, total), hours(r.CPU), hours(r.Node), hours(r.Fault), hours(r.Preempt), r.Charged)
		if name == "accounts" {
			cells = slices.Insert(cells, 0, Word(r.Account))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// idle returns the hours in which GPUs were idle; null if unknown.
func idle(t *tally.Tally) Value {
	if t.GPUKnown == 0 {
		return None()
	}
	return Number(hours(t.GPUKnown - t.GPUBusy))
}

// efficiency returns the report of how much of their allocation attempts used.
func efficiency(rows []Row) Table {
	t := Table{Name: "efficiency", Columns: columns(
		texts("account", "user"), numbers(0, "attempts"), details(3, "cpu_hours", "cpu_used_hours"), numbers(1, "cpu_percent"), details(1, "mem_percent"),
		numbers(3, "gpu_hours"), details(3, "gpu_known_hours"), numbers(1, "gpu_used_percent"), numbers(3, "gpu_idle_hours"),
		details(3, "gpu_lost_hours"), details(1, "gpu_lost_percent", "completed_percent"),
	)}
	for _, r := range group(rows, func(k tally.Key) tally.Key { return tally.Key{Account: k.Account, User: k.User} }) {
		if r.Attempts == 0 {
			continue
		}
		lost := r.Fault + r.Preempt
		t.Rows = append(t.Rows, row(
			r.Account, r.User, r.Attempts, hours(r.CPUHeld), hours(r.CPUUsed), percent(r.CPUUsed, r.CPUHeld), percent(r.MemUsed, r.MemHeld),
			hours(r.GPU), hours(r.GPUKnown), percent(r.GPUBusy, r.GPUKnown), idle(&r.Tally), hours(lost), percent(lost, r.GPU), percent(r.Jobs(cluster.Completed), r.All()),
		))
	}
	return t
}

// promises returns the report of promised starts and the causes of broken ones.
func promises(rows []Row) Table {
	t := Table{Name: "promises", Columns: columns(texts("partition", "qos", "outcome", "cause"), numbers(0, "promises"), numbers(1, "percent"))}
	for _, r := range group(rows, func(k tally.Key) tally.Key { return tally.Key{Partition: k.Partition, QOS: k.QOS} }) {
		all := r.Kept + r.Broken
		add := func(outcome, cause string, n int64, share Value) {
			if n > 0 {
				t.Rows = append(t.Rows, row(r.Partition, r.QOS, outcome, cause, n, share))
			}
		}
		add("kept", "", r.Kept, percent(r.Kept, all))
		for _, c := range r.Causes {
			add("broken", c.Why, c.Count, percent(c.Count, all))
		}
		add("dropped", "the job was cancelled, held or changed", r.Dropped, None())
	}
	return t
}
