package report

import (
	"cmp"
	"slices"
	"strings"
)

// Credit is the sum of journal entries of one kind, in micro-credits.
type Credit struct {
	Node    string // account, or account/user
	Kind    string // grant repay lien charge overshoot release refund expire void
	Class   string // of the bucket: promo grant refund purchase; "" for debt
	GPUType string // of the job
	Bucket  uint64
	Amount  int64
	Entries int64
	Late    bool // booked after its period was closed
}

// Payer splits the payer into account and user.
func (c *Credit) Payer() (account, user string) {
	account, user, _ = strings.Cut(c.Node, "/")
	return account, user
}

// Spent returns the net spending for jobs: charges minus refunds.
func (c *Credit) Spent() int64 {
	switch c.Kind {
	case "charge", "overshoot":
		return c.Amount
	case "refund":
		return -c.Amount
	}
	return 0
}

// Credits returns the report of credits granted, spent, refunded and expired.
func Credits(rows []Credit) Table {
	t := Table{Name: "credits", Columns: columns(texts("account", "user", "class"),
		numbers(6, "granted", "charged", "refunded"), details(6, "net"), seldom(6, "repaid"), numbers(6, "expired"), seldom(6, "voided"), details(6, "set_aside", "released"))}
	type key struct{ account, user, class string }
	at := make(map[key]int)
	var keys []key
	var sums [][9]int64
	for i := range rows {
		account, user := rows[i].Payer()
		k := key{account, user, rows[i].Class}
		n, known := at[k]
		if !known {
			n = len(keys)
			at[k], keys, sums = n, append(keys, k), append(sums, [9]int64{})
		}
		sum, amount := &sums[n], rows[i].Amount
		column := map[string]int{"grant": 0, "charge": 1, "overshoot": 1, "refund": 2, "repay": 4, "expire": 5, "void": 6, "lien": 7, "release": 8}
		if c, counted := column[rows[i].Kind]; counted {
			sum[c] += amount
		}
		sum[3] += rows[i].Spent()
	}
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(keys[a].account, keys[b].account), cmp.Compare(keys[a].user, keys[b].user), cmp.Compare(keys[a].class, keys[b].class))
	})
	for _, i := range order {
		cells := row(keys[i].account, keys[i].user, keys[i].class)
		for _, n := range sums[i] {
			cells = append(cells, Number(n))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}
