package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// ErrFOCUS is wrapped by every error of CheckFOCUS.
var ErrFOCUS = errors.New("not well-formed FOCUS")

// mandatory returns the columns that specification 1.2 requires of every provider; true means
// nullable.
func mandatory() map[string]bool {
	return map[string]bool{
		"BilledCost": false, "BillingAccountId": false, "BillingAccountName": true, "BillingCurrency": false, "BillingPeriodEnd": false, "BillingPeriodStart": false,
		"ChargeCategory": false, "ChargeClass": true, "ChargeDescription": true, "ChargePeriodEnd": false, "ChargePeriodStart": false, "ContractedCost": false,
		"EffectiveCost": false, "InvoiceIssuerName": false, "ListCost": false, "PricingQuantity": true, "PricingUnit": true, "ProviderName": false,
		"PublisherName": false, "ServiceCategory": false, "ServiceName": false,
	}
}

// CheckFOCUS checks a table against the specification's rules for single rows: columns,
// nullability, values, times, tags.
func CheckFOCUS(t *Table) error {
	at := make(map[string]int)
	for i, c := range t.Columns {
		if _, duplicate := at[c.Name]; duplicate {
			return fmt.Errorf("%w: duplicate column %s", ErrFOCUS, c.Name)
		}
		at[c.Name] = i
	}
	for name := range mandatory() {
		if _, there := at[name]; !there {
			return fmt.Errorf("%w: the column %s is missing", ErrFOCUS, name)
		}
	}
	for n, r := range t.Rows {
		cell := func(name string) Value {
			if i, there := at[name]; there {
				return r[i]
			}
			return None()
		}
		if err := checkFOCUSRow(cell); err != nil {
			return fmt.Errorf("%w: row %d: %w", ErrFOCUS, n+1, err)
		}
		for i, c := range t.Columns {
			if c.Digits == Text && !r[i].Null && r[i].Text == "" {
				return fmt.Errorf("%w: row %d: %s is empty and not null", ErrFOCUS, n+1, c.Name)
			}
		}
	}
	return nil
}

func checkFOCUSRow(cell func(string) Value) error {
	for name, null := range mandatory() {
		if !null && cell(name).Null {
			return fmt.Errorf("%s is null", name)
		}
	}
	category := cell("ChargeCategory").Text
	if !slices.Contains([]string{"Usage", "Purchase", "Tax", "Credit", "Adjustment"}, category) {
		return fmt.Errorf("ChargeCategory is %q", category)
	}
	if class := cell("ChargeClass"); !class.Null && class.Text != "Correction" {
		return fmt.Errorf("ChargeClass is %q", class.Text)
	}
	if f := cell("ChargeFrequency"); !f.Null && !slices.Contains([]string{"One-Time", "Recurring", "Usage-Based"}, f.Text) || category == "Purchase" && f.Text == "Usage-Based" {
		return fmt.Errorf("ChargeFrequency is %q of %s", f.Text, category)
	}
	if c := cell("BillingCurrency").Text; len(c) != 3 {
		return fmt.Errorf("BillingCurrency is %q", c)
	}
	if cell("PricingQuantity").Null != cell("PricingUnit").Null || cell("ConsumedQuantity").Null != cell("ConsumedUnit").Null {
		return errors.New("a quantity has no unit, or a unit no quantity")
	}
	for _, pair := range [...]string{"Billing", "Charge"} {
		from, err := time.Parse("2006-01-02T15:04:05Z", cell(pair+"PeriodStart").Text)
		if err != nil {
			return err
		}
		to, err := time.Parse("2006-01-02T15:04:05Z", cell(pair+"PeriodEnd").Text)
		if err != nil {
			return err
		}
		if !from.Before(to) {
			return fmt.Errorf("%sPeriodEnd is not after its start", pair)
		}
	}
	if err := checkFOCUSPrices(cell); err != nil {
		return err
	}
	var tags map[string]string
	if x := cell("Tags"); !x.Null && json.Unmarshal([]byte(x.Text), &tags) != nil {
		return fmt.Errorf("tags %q are no flat JSON object", x.Text)
	}
	return nil
}

// checkFOCUSPrices checks the prices of usage and purchases except corrections: a unit price whose
// product with the quantity is the cost, to six decimals.
func checkFOCUSPrices(cell func(string) Value) error {
	category := cell("ChargeCategory").Text
	if used := category == "Usage"; used == cell("ConsumedQuantity").Null && (!used || cell("ChargeClass").Null) {
		return fmt.Errorf("ConsumedQuantity is wrong for %s", category)
	}
	if category != "Usage" && category != "Purchase" || !cell("ChargeClass").Null {
		return nil
	}
	for _, name := range [...]string{
		"PricingQuantity", "PricingCategory", "SkuId", "SkuPriceId", "ListUnitPrice", "ContractedUnitPrice", "PricingCurrencyListUnitPrice", "PricingCurrencyContractedUnitPrice",
	} {
		if cell(name).Null {
			return fmt.Errorf("%s of %s is null", name, category)
		}
	}
	for price, cost := range map[string]string{"ListUnitPrice": "ListCost", "ContractedUnitPrice": "ContractedCost"} {
		quantity := big.NewInt(cell("PricingQuantity").Number)
		product := new(big.Int).Mul(big.NewInt(cell(price).Number), quantity)
		product.Sub(product, new(big.Int).Mul(big.NewInt(cell(cost).Number), big.NewInt(micro)))
		most := new(big.Int).Add(quantity.Abs(quantity), big.NewInt(2*micro)) // price and cost are rounded
		if cell(price).Number < 0 || product.CmpAbs(most) > 0 {
			return fmt.Errorf("%s × PricingQuantity is not %s", price, cost)
		}
	}
	return nil
}
