package accounting_test

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// ExampleLedger reserves, charges and releases credits. A project with 100 credits runs a job of 8
// GPUs for three of the five hours that it reserved.
func ExampleLedger() {
	now := cluster.InstantOf(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))
	stamp := func(key string) accounting.Stamp { return accounting.Stamp{At: now, Key: key} }
	check := func(receipt accounting.Receipt, err error) accounting.Receipt {
		if err != nil {
			fmt.Println(err)
		}
		return receipt
	}
	ledger := accounting.New()
	check(ledger.SetPrice(stamp("price"), accounting.Rate{GPUType: "h100", Price: 2 * accounting.One}, 0))
	grant := check(ledger.Grant(stamp("grant"), accounting.Grant{Owner: accounting.PayerPath{"lab"}, Amount: 100 * accounting.One, Class: accounting.GrantClass}))

	job := accounting.LienID{Job: 1, Attempt: 1}
	claim := accounting.Claim{
		ID: job, Chain: accounting.PayerPath{"lab/ada", "lab"}, Amount: 80 * accounting.One,
		Rates: []accounting.Rate{{GPUType: "h100", Price: 2 * accounting.One}},
	}
	fmt.Println("reserved", check(ledger.CreateLien(stamp("place"), claim)).Held)
	check(ledger.StartBilling(stamp("dispatch"), job, accounting.GPUs{Type: "h100", Count: 8}))
	now = now.Add(3 * time.Hour)
	end := check(ledger.Settle(stamp("settle"), accounting.Settlement{Lien: job, Total: accounting.Millis(8, 3*time.Hour)}))
	fmt.Println("charged", end.Charged, "released", end.Released)
	bucket, _ := ledger.Bucket(grant.Bucket)
	fmt.Println("available", bucket.Avail)
	// Output:
	// reserved 80.000000
	// charged 48.000000 released 32.000000
	// available 52.000000
}
