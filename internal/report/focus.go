package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"
)

// FOCUSVersion is the version of the FinOps Open Cost and Usage Specification whose columns FOCUS
// writes (https://focus.finops.org, specification 1.2).
const FOCUSVersion = "1.2"

// Day holds the rows of one day for FOCUS.
type Day struct {
	From, To time.Time
	Usage    []Row
	Credits  []Credit
	Leases   []Lease // that ended on the day
}

// Billing holds what FOCUS needs beyond the rows.
type Billing struct {
	Cluster  string
	Currency string // ISO 4217 currency of credits
	Price    int64  // price of a credit in micro-units of the currency
	Provider string // name of the cloud whose nodes are leased
}

// pricingCurrency is the currency of job prices.
const pricingCurrency = "GPU-CREDIT"

// focusColumns returns the columns in the order of the specification's samples. Names with x_ are
// custom columns, which it allows.
func focusColumns() []Column {
	money := map[string]bool{
		"BilledCost": true, "ConsumedQuantity": true, "ContractedCost": true, "ContractedUnitPrice": true, "EffectiveCost": true, "ListCost": true,
		"ListUnitPrice": true, "PricingCurrencyContractedUnitPrice": true, "PricingCurrencyEffectiveCost": true, "PricingCurrencyListUnitPrice": true,
		"PricingQuantity": true, "x_Credits": true,
	}
	var out []Column
	for _, name := range [...]string{
		"BilledCost", "BillingAccountId", "BillingAccountName", "BillingAccountType", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
		"ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart",
		"ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "InvoiceIssuerName", "ListCost", "ListUnitPrice",
		"PricingCategory", "PricingCurrency", "PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost", "PricingCurrencyListUnitPrice",
		"PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "RegionId", "RegionName", "ResourceId", "ResourceType", "ServiceCategory", "ServiceName",
		"SkuId", "SkuMeter", "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags", "x_BucketClass", "x_Credits",
	} {
		digits := Text
		if money[name] {
			digits = 6
		}
		out = append(out, Column{Name: name, Digits: digits})
	}
	return out
}

// focusRow is one row by column name; missing columns are null.
type focusRow map[string]Value

// FOCUS returns the usage, purchases, credits and leased nodes of days, which must be UTC days, as the
// specification requires. The GPU hours of an account, user and type are split over the classes of
// credits that paid for them, in proportion.
func FOCUS(days []Day, b Billing) (Table, error) {
	t := Table{Name: "focus", Columns: focusColumns()}
	for i := range days {
		d := &days[i]
		if d.From.Location() != time.UTC {
			return t, fmt.Errorf("FOCUS is written for UTC only, not %s", d.From.Location())
		}
		rows := slices.Concat(d.grants(b), d.usage(b), d.leases(b))
		for _, r := range rows {
			d.common(r, b)
			line := make([]Value, len(t.Columns))
			for k, c := range t.Columns {
				v, present := r[c.Name]
				if !present {
					v = None()
				}
				line[k] = v
			}
			t.Rows = append(t.Rows, line)
		}
	}
	return t, CheckFOCUS(&t)
}

// common sets the columns that all rows of a day share, unless a row has its own.
func (d *Day) common(r focusRow, b Billing) {
	month := time.Date(d.From.Year(), d.From.Month(), 1, 0, 0, 0, 0, time.UTC)
	for name, text := range map[string]string{
		"BillingAccountId": b.Cluster, "BillingAccountName": b.Cluster, "BillingAccountType": "Cluster", "BillingCurrency": b.Currency,
		"BillingPeriodStart": utc(month), "BillingPeriodEnd": utc(month.AddDate(0, 1, 0)), "ChargePeriodStart": utc(d.From), "ChargePeriodEnd": utc(d.To),
		"InvoiceIssuerName": b.Cluster, "ProviderName": b.Cluster, "PublisherName": b.Cluster, "ServiceCategory": "Compute", "ServiceName": "Batch",
		"PricingCurrency": pricingCurrency, "SubAccountType": "Account",
	} {
		if _, own := r[name]; !own {
			r[name] = Word(text)
		}
	}
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// cost returns the cost of credits in micro-units of the currency.
func (b Billing) cost(credits int64) int64 { return scaled(credits, b.Price, 1_000_000) }

// basis returns the payer's cost of credits of a class: granted credits cost nothing.
func (b Billing) basis(class string, credits int64) int64 {
	if class == "promo" || class == "grant" {
		return 0
	}
	return b.cost(credits)
}

// grants returns the rows that are not usage: purchased, granted, expired and voided credits.
func (d *Day) grants(b Billing) []focusRow {
	var out []focusRow
	for i := range d.Credits {
		c := &d.Credits[i]
		r := focusRow{
			"BilledCost": Number(0), "EffectiveCost": Number(0), "ListCost": Number(0), "ContractedCost": Number(0), "PricingCurrencyEffectiveCost": Number(0),
			"ChargeFrequency": Word("One-Time"), "PricingQuantity": Number(c.Amount), "PricingUnit": Word("Credits"), "PricingCategory": Word("Standard"),
			"ResourceId": Word("bucket/" + strconv.FormatUint(c.Bucket, 10)), "ResourceType": Word("Bucket"), "SkuId": Word("credits"), "SkuPriceId": Word("credits"), "SkuMeter": Word("Credits"),
			"x_BucketClass": Word(c.Class), "x_Credits": Number(c.Amount),
		}
		switch {
		case c.Kind == "grant" && c.Class == "purchase":
			r["ChargeCategory"], r["ChargeDescription"] = Word("Purchase"), Word("credits bought")
			for _, name := range [...]string{"BilledCost", "ListCost", "ContractedCost"} {
				r[name] = Number(b.cost(c.Amount))
			}
			r.priced(b.Price, micro)
		case c.Kind == "grant":
			r["ChargeCategory"], r["ChargeDescription"] = Word("Credit"), Word("credits granted")
		case c.Kind == "expire":
			r["ChargeCategory"], r["ChargeDescription"] = Word("Adjustment"), Word("credits expired unused")
		case c.Kind == "void":
			r["ChargeCategory"], r["ChargeDescription"] = Word("Adjustment"), Word("credits voided")
		default:
			continue
		}
		account, user := c.Payer()
		r.payer(account, user, c.Late, map[string]string{"x_bucket": strconv.FormatUint(c.Bucket, 10)})
		out = append(out, r)
	}
	return out
}

// micro is 1 in units of the last decimal of FOCUS numbers.
const micro = 1_000_000

// priced sets the unit price in the currency and in credits. There are no discounts.
func (r focusRow) priced(price, credits int64) {
	r["ListUnitPrice"], r["ContractedUnitPrice"] = Number(price), Number(price)
	r["PricingCurrencyListUnitPrice"], r["PricingCurrencyContractedUnitPrice"] = Number(credits), Number(credits)
}

// ratio returns the cost per unit of quantity, both in micro-units, rounded; 0 for a quantity of 0.
// Values out of range become the largest number.
func ratio(cost, quantity int64) int64 {
	if cost <= 0 || quantity <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(cost), micro)
	low, overflow := bits.Add64(low, uint64(quantity)/2, 0)
	if high += overflow; high >= uint64(quantity) {
		return math.MaxInt64
	}
	n, _ := bits.Div64(high, low, uint64(quantity))
	return int64(min(n, math.MaxInt64))
}

// payer sets the payer of a row.
func (r focusRow) payer(account, user string, late bool, tags map[string]string) {
	if account != "" {
		r["SubAccountId"], r["SubAccountName"] = Word(account), Word(account)
	} else {
		r["SubAccountType"] = None()
	}
	if user != "" {
		tags["user"] = user
	}
	text, _ := json.Marshal(tags) // never fails for strings
	r["Tags"] = Word(string(text))
	if late {
		r["ChargeClass"] = Word("Correction")
	}
}

// worked identifies the user of a GPU type on a day.
type worked struct{ account, user, gpuType string }

func (w worked) compare(o worked) int {
	return cmp.Or(cmp.Compare(w.account, o.account), cmp.Compare(w.user, o.user), cmp.Compare(w.gpuType, o.gpuType))
}

// usage returns the rows of a day's jobs with the credits that paid for them.
func (d *Day) usage(b Billing) []focusRow {
	millis := make(map[worked]int64)
	paid := make(map[worked][]*Credit)
	for i := range d.Usage {
		r := &d.Usage[i]
		if r.GPU > 0 {
			millis[worked{r.Account, r.User, r.GPUType}] += r.GPU
		}
	}
	for i := range d.Credits {
		c := &d.Credits[i]
		if c.Spent() != 0 {
			account, user := c.Payer()
			w := worked{account, user, c.GPUType}
			millis[w] += 0
			paid[w] = append(paid[w], c)
		}
	}
	order := make([]worked, 0, len(millis))
	for w := range millis {
		order = append(order, w)
	}
	slices.SortFunc(order, worked.compare)
	var out []focusRow
	for _, w := range order {
		out = append(out, w.rows(millis[w], paid[w], b)...)
	}
	return out
}

// rows splits usage over the credits that paid for it; unpaid usage is one row with cost 0.
func (w worked) rows(millis int64, paid []*Credit, b Billing) []focusRow {
	total := int64(0)
	for _, c := range paid {
		total += max(c.Spent(), 0)
	}
	if total == 0 {
		paid = append([]*Credit{{Kind: "free"}}, paid...)
	}
	var out []focusRow
	left, gone := scaled(millis, 10, 36), int64(0) // micro GPU hours; credits counted so far
	whole := left
	for _, c := range paid {
		spent, part := c.Spent(), int64(0)
		switch {
		case c.Kind == "free":
			part = left
		case spent > 0:
			gone += spent
			part = left
			if gone < total {
				part = portion(whole, spent, total)
			}
		}
		left -= part
		out = append(out, w.row(c, part, b))
	}
	return out
}

// portion returns whole × part / all, rounded down; all is positive and at least part.
func portion(whole, part, all int64) int64 {
	for all > 1<<31 {
		part, all = part>>1, all>>1
	}
	return whole/all*part + whole%all*part/all
}

func (w worked) row(c *Credit, quantity int64, b Billing) focusRow {
	spent, kind := c.Spent(), w.gpuType
	if kind == "" {
		kind = "gpu"
	}
	effective := b.basis(c.Class, spent)
	own := spent
	if effective == 0 {
		own = 0
	}
	pricing, unit := quantity, "GPU-Hours"
	price, credits := ratio(b.cost(spent), quantity), ratio(spent, quantity)
	if quantity == 0 || spent < 0 { // billed on another day than used, or refunded: credits are the quantity
		pricing, unit, price, credits = spent, "Credits", b.Price, micro
	}
	r := focusRow{
		"ChargeCategory": Word("Usage"), "ChargeDescription": Word("GPU hours of jobs"), "ChargeFrequency": Word("Usage-Based"),
		"BilledCost": Number(0), "EffectiveCost": Number(effective), "ListCost": Number(b.cost(spent)), "ContractedCost": Number(b.cost(spent)),
		"PricingCurrencyEffectiveCost": Number(own), "PricingCategory": Word("Standard"),
		"ConsumedQuantity": Number(quantity), "ConsumedUnit": Word("GPU-Hours"), "PricingQuantity": Number(pricing), "PricingUnit": Word(unit),
		"SkuId": Word(kind), "SkuPriceId": Word(kind), "SkuMeter": Word("GPU-Hours"), "x_Credits": Number(spent),
	}
	r.priced(price, credits)
	if c.Class != "" {
		r["x_BucketClass"] = Word(c.Class)
	}
	if c.Kind == "refund" {
		r["ChargeDescription"] = Word("refund")
	}
	r.payer(w.account, w.user, c.Late, map[string]string{"gpu_type": w.gpuType})
	return r
}
