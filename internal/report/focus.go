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

// FOCUSVersion is the version of the FinOps Open Cost and Usage Specification whose
// columns FOCUS writes (https://focus.finops.org, specification 1.2).
const FOCUSVersion = "1.2"

// Day is one day's rows, for FOCUS.
type Day struct {
	From, To time.Time
	Usage    []Row
	Credits  []Credit
}

// Billing says what FOCUS cannot know from the rows.
type Billing struct {
	Cluster  string
	Currency string // ISO 4217, in which credits are bought
	Price    int64  // micro-units of the currency that a credit costs
}

// pricingCurrency is what jobs are priced in.
const pricingCurrency = "GPU-CREDIT"

// focusColumns are the columns, in the order of their names as the specification's own
// samples have them; those that begin with x_ are ours, as it allows.
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
		"PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ResourceId", "ResourceType", "ServiceCategory", "ServiceName",
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

// focusRow is one row by the names of its columns; what is not named is null.
type focusRow map[string]Value

// FOCUS is usage, purchases and credits of days. Days must be of UTC, as the
// specification wants. A day's GPU hours of an account, user and type are split over
// the classes of credits that paid for them, in proportion.
func FOCUS(days []Day, b Billing) (Table, error) {
	t := Table{Name: "focus", Columns: focusColumns()}
	for i := range days {
		d := &days[i]
		if d.From.Location() != time.UTC {
			return t, fmt.Errorf("FOCUS is written for UTC only, not %s", d.From.Location())
		}
		rows := append(d.grants(b), d.usage(b)...)
		for _, r := range rows {
			d.common(r, b)
			line := make([]Value, len(t.Columns))
			for k, c := range t.Columns {
				v, told := r[c.Name]
				if !told {
					v = None()
				}
				line[k] = v
			}
			t.Rows = append(t.Rows, line)
		}
	}
	return t, CheckFOCUS(&t)
}

// common sets what all rows of a day have alike.
func (d *Day) common(r focusRow, b Billing) {
	month := time.Date(d.From.Year(), d.From.Month(), 1, 0, 0, 0, 0, time.UTC)
	for name, text := range map[string]string{
		"BillingAccountId": b.Cluster, "BillingAccountName": b.Cluster, "BillingAccountType": "Cluster", "BillingCurrency": b.Currency,
		"BillingPeriodStart": utc(month), "BillingPeriodEnd": utc(month.AddDate(0, 1, 0)), "ChargePeriodStart": utc(d.From), "ChargePeriodEnd": utc(d.To),
		"InvoiceIssuerName": b.Cluster, "ProviderName": b.Cluster, "PublisherName": b.Cluster, "ServiceCategory": "Compute", "ServiceName": "Batch",
		"PricingCurrency": pricingCurrency, "SubAccountType": "Account",
	} {
		r[name] = Word(text)
	}
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// cost is what credits cost, in micro-units of the currency.
func (b Billing) cost(credits int64) int64 { return scaled(credits, b.Price, 1_000_000) }

// basis is what credits of a class cost their payer: what was given costs nothing.
func (b Billing) basis(class string, credits int64) int64 {
	if class == "promo" || class == "grant" {
		return 0
	}
	return b.cost(credits)
}

// grants are the rows that are no usage: bought, given, expired and voided credits.
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
			r["ChargeCategory"], r["ChargeDescription"] = Word("Credit"), Word("credits given")
		case c.Kind == "expire":
			r["ChargeCategory"], r["ChargeDescription"] = Word("Adjustment"), Word("credits expired unused")
		case c.Kind == "void":
			r["ChargeCategory"], r["ChargeDescription"] = Word("Adjustment"), Word("credits taken back")
		default:
			continue
		}
		account, user := c.Payer()
		r.payer(account, user, c.Late, map[string]string{"x_bucket": strconv.FormatUint(c.Bucket, 10)})
		out = append(out, r)
	}
	return out
}

// micro is one, in units of the last decimal of all FOCUS numbers.
const micro = 1_000_000

// priced sets what a unit costs, in the currency and in credits: nobody has a discount.
func (r focusRow) priced(price, credits int64) {
	r["ListUnitPrice"], r["ContractedUnitPrice"] = Number(price), Number(price)
	r["PricingCurrencyListUnitPrice"], r["PricingCurrencyContractedUnitPrice"] = Number(credits), Number(credits)
}

// ratio is cost for each of quantity, both in micro-units, rounded; 0 of nothing. The
// largest number stands for what is too large.
func ratio(cost, quantity int64) int64 {
	if cost <= 0 || quantity <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(cost), micro)
	low, carry := bits.Add64(low, uint64(quantity)/2, 0)
	if high += carry; high >= uint64(quantity) {
		return math.MaxInt64
	}
	n, _ := bits.Div64(high, low, uint64(quantity))
	return int64(min(n, math.MaxInt64))
}

// payer sets who a row is about.
func (r focusRow) payer(account, user string, late bool, tags map[string]string) {
	if account != "" {
		r["SubAccountId"], r["SubAccountName"] = Word(account), Word(account)
	} else {
		r["SubAccountType"] = None()
	}
	if user != "" {
		tags["user"] = user
	}
	text, _ := json.Marshal(tags) // strings always can be
	r["Tags"] = Word(string(text))
	if late {
		r["ChargeClass"] = Word("Correction")
	}
}

// worked is who used a type of GPU on a day.
type worked struct{ account, user, gpuType string }

func (w worked) compare(o worked) int {
	return cmp.Or(cmp.Compare(w.account, o.account), cmp.Compare(w.user, o.user), cmp.Compare(w.gpuType, o.gpuType))
}

// usage are the rows of a day's work, each with what paid for it.
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

// rows splits work over what paid for it; unpaid work is one row that costs nothing.
func (w worked) rows(millis int64, paid []*Credit, b Billing) []focusRow {
	total := int64(0)
	for _, c := range paid {
		total += max(c.Spent(), 0)
	}
	if total == 0 {
		paid = append([]*Credit{{Kind: "free"}}, paid...)
	}
	var out []focusRow
	left, gone := scaled(millis, 10, 36), int64(0) // micro GPU hours; credits that were counted
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

// portion is whole × part / all, rounded down; all is above 0 and not below part.
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
	if quantity == 0 || spent < 0 { // billed on another day than it was used, or given back: credits are the measure
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
		r["ChargeDescription"] = Word("given back")
	}
	r.payer(w.account, w.user, c.Late, map[string]string{"gpu_type": w.gpuType})
	return r
}
