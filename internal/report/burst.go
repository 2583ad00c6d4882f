package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/greylag/greylag/internal/report/tally"
)

// Lease is a leased cloud node that has ended. Cost is in millionths of Currency.
type Lease struct {
	Lease     uint64
	Account   string
	Job       string // for which it was leased
	Partition string
	Offer     string
	Market    string
	Region    string
	Type      string
	Currency  string
	Month     time.Time // whose budgets it counts in
	Launched  bool      // there was an instance
	Reclaimed bool      // by the cloud
	Instance  string
	Ran       time.Duration // of the instance
	Cost      int64
}

// monthOf returns the month of a budget, such as 2026-11.
func (l *Lease) monthOf() string { return l.Month.UTC().Format("2006-01") }

// offerMonth identifies the leases of one row.
type offerMonth struct{ account, month, region, offer, market, currency string }

// leaseSum adds up leases.
type leaseSum struct{ nodes, failed, reclaimed, millis, cost int64 }

func (s *leaseSum) add(l *Lease) {
	if !l.Launched {
		s.failed++
		return
	}
	if s.nodes++; l.Reclaimed {
		s.reclaimed++
	}
	s.millis = capped(s.millis, l.Ran.Milliseconds())
	s.cost = capped(s.cost, l.Cost)
}

// capped adds amounts that are not negative; a sum that is out of range is the largest number.
func capped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Burst returns the report of leased nodes by account: what the cloud charged, by month of the budget and offer, and in a
// row of its own what the jobs in the partitions of leased nodes used and were charged.
func Burst(leases []Lease, rows []Row, partitions []string) Table {
	t := Table{Name: "burst", Columns: columns(
		texts("account", "of", "budget_month", "region", "offer", "market"), numbers(0, "leases", "failed", "reclaimed"),
		numbers(3, "node_hours"), numbers(6, "cost"), texts("currency"), numbers(3, "gpu_hours"), numbers(6, "charged"),
	)}
	sums := map[offerMonth]*leaseSum{}
	for i := range leases {
		l := &leases[i]
		k := offerMonth{l.Account, l.monthOf(), l.Region, l.Offer, l.Market, l.Currency}
		if sums[k] == nil {
			sums[k] = &leaseSum{}
		}
		sums[k].add(l)
	}
	for k, s := range sums {
		t.Rows = append(t.Rows, row(
			k.account, "leases", k.month, k.region, k.offer, k.market, s.nodes, s.failed, s.reclaimed, hours(s.millis), s.cost, k.currency, None(), None()))
	}
	used := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !slices.Contains(partitions, r.Partition) })
	for _, r := range group(used, func(k tally.Key) tally.Key { return tally.Key{Account: k.Account} }) {
		t.Rows = append(t.Rows, row(
			r.Account, "jobs", None(), None(), None(), None(), None(), None(), None(), hours(r.Node), None(), None(), hours(r.GPU), r.Charged))
	}
	slices.SortFunc(t.Rows, func(a, b []Value) int {
		of := cmp.Compare(b[1].Text, a[1].Text) // leases first
		order := cmp.Or(cmp.Compare(a[0].Text, b[0].Text), of)
		for _, i := range [...]int{2, 3, 4, 5, 11} {
			order = cmp.Or(order, cmp.Compare(a[i].Text, b[i].Text))
		}
		return order
	})
	return t
}

// leases returns the rows of the leases of a day: what the cloud charges the site for the nodes.
func (d *Day) leases(b Billing) []focusRow {
	var out []focusRow
	for i := range d.Leases {
		if d.Leases[i].Launched {
			out = append(out, d.Leases[i].row(b))
		}
	}
	return out
}

func (l *Lease) row(b Billing) focusRow {
	quantity := scaled(max(l.Ran, 0).Milliseconds(), 10, 36) // micro hours
	if quantity == 0 && l.Cost > 0 {
		quantity = scaled(time.Minute.Milliseconds(), 10, 36)
	}
	price := ratio(l.Cost, quantity)
	r := focusRow{
		"ChargeCategory": Word("Usage"), "ChargeDescription": Word("cloud node"), "ChargeFrequency": Word("Usage-Based"),
		"BilledCost": Number(l.Cost), "EffectiveCost": Number(l.Cost), "ListCost": Number(l.Cost), "ContractedCost": Number(l.Cost),
		"PricingCurrencyEffectiveCost": Number(l.Cost), "PricingCategory": Word("Standard"),
		"ConsumedQuantity": Number(quantity), "ConsumedUnit": Word("Hours"), "PricingQuantity": Number(quantity), "PricingUnit": Word("Hours"),
		"ResourceId": Word(l.Instance), "ResourceType": Word("Instance"), "SkuId": Word(l.Offer), "SkuPriceId": Word(l.Offer + "/" + l.Market), "SkuMeter": Word("Node-Hours"),
		// In place of those of the cluster:
		"BillingCurrency": Word(l.Currency), "PricingCurrency": Word(l.Currency), "ServiceName": Word("Cloud burst"),
		"InvoiceIssuerName": Word(b.Provider), "ProviderName": Word(b.Provider), "PublisherName": Word(b.Provider),
	}
	if l.Region != "" {
		r["RegionId"], r["RegionName"] = Word(l.Region), Word(l.Region)
	}
	if l.Market == "spot" {
		r["PricingCategory"] = Word("Dynamic")
	}
	r.priced(price, price)
	tags := map[string]string{
		"budget_month": l.monthOf(), "job": l.Job, "lease": strconv.FormatUint(l.Lease, 10), "partition": l.Partition, "reclaimed": strconv.FormatBool(l.Reclaimed),
	}
	r.payer(l.Account, "", false, tags)
	return r
}
