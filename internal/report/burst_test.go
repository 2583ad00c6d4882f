package report

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/report/tally"
)

// rented returns a lease of an hour that cost an amount.
func rented(id uint64, account, offer, market string, cost int64) Lease {
	return Lease{
		Lease: id, Account: account, Job: "7", Partition: "cloud", Offer: offer, Market: market, Region: "us", Type: "p5", Currency: "USD",
		Month: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), Launched: true, Instance: "i-1", Ran: time.Hour, Cost: cost,
	}
}

func TestBurst(t *testing.T) {
	leases := []Lease{
		rented(1, "physics", "p5/a", "spot", 3_333_333), rented(2, "physics", "p5/a", "spot", 1), rented(3, "physics", "p5/a", "on-demand", 9_000_000),
		rented(4, "maths", "p5/a", "spot", math.MaxInt64), rented(5, "maths", "p5/a", "spot", 5), rented(6, "physics", "p5/a", "spot", 0), rented(7, "physics", "p5/a", "spot", 2_000_000),
	}
	leases[1].Reclaimed, leases[5].Launched = true, false
	leases[6].Currency = "EUR" // never added to USD
	rows := []Row{
		{Key: tally.Key{Account: "physics", User: "ann", Partition: "cloud"}, Tally: tally.Tally{GPU: 8 * 3_600_000, Node: 3_600_000, Charged: 4_000_000}},
		{Key: tally.Key{Account: "physics", User: "bob", Partition: "rented"}, Tally: tally.Tally{GPU: 3_600_000, Node: 3_600_000, Charged: 1}},
		{Key: tally.Key{Account: "physics", User: "ann", Partition: "main"}, Tally: tally.Tally{GPU: 99 * 3_600_000}},
		{Key: tally.Key{Account: "law", User: "eve", Partition: "cloud"}, Tally: tally.Tally{Node: 1_800_000}},
	}
	table := Burst(leases, rows, []string{"cloud", "rented"})
	const want = `account,of,budget_month,region,offer,market,leases,failed,reclaimed,node_hours,cost,currency,gpu_hours,charged
law,jobs,,,,,,,,0.500,,,0.000,0.000000
maths,leases,2026-10,us,p5/a,spot,2,0,0,2.000,9223372036854.775807,USD,,
physics,leases,2026-10,us,p5/a,on-demand,1,0,0,1.000,9.000000,USD,,
physics,leases,2026-10,us,p5/a,spot,1,0,0,1.000,2.000000,EUR,,
physics,leases,2026-10,us,p5/a,spot,2,1,1,2.000,3.333334,USD,,
physics,jobs,,,,,,,,2.000,,,9.000,4.000001
`
	if got := string(table.CSV()); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestRentalAlerts checks the steps of rental budgets, also for sums that are out of range.
func TestRentalAlerts(t *testing.T) {
	now := time.Date(2026, 11, 27, 1, 0, 0, 0, time.UTC)
	for _, x := range []struct {
		limit, spent, committed int64
		want                    string
	}{
		{100, 79, 0, ""}, {100, 50, 30, "rental.used:ml:2026-11:80"}, {100, 98, 0, "rental.used:ml:2026-11:80"}, {100, 60, 39, "rental.used:ml:2026-11:99"},
		{100, math.MaxInt64, math.MaxInt64, "rental.used:ml:2026-11:99"}, {0, 5, 5, ""},
	} {
		s := Standing{Rentals: []RentalStanding{{Account: "ml", Currency: "USD", Limit: x.limit, Spent: x.spent, Committed: x.committed}}}
		got := ""
		for _, a := range s.Alerts(now) {
			got += a.ID
		}
		if got != x.want {
			t.Errorf("%d and %d of %d: %q, want %q", x.spent, x.committed, x.limit, got, x.want)
		}
	}
}

// TestFOCUSOfLeases checks that each lease with an instance is one row in its own currency, with the cloud as the provider,
// and that the rows of jobs do not change.
func TestFOCUSOfLeases(t *testing.T) {
	from := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	d := Day{From: from, To: from.AddDate(0, 0, 1), Usage: []Row{{Key: tally.Key{Account: "a", User: "u"}, Tally: tally.Tally{GPU: 3_600_000}}}}
	for i, ran := range []time.Duration{0, time.Millisecond, 7 * time.Second, time.Hour, 100 * 24 * time.Hour} {
		for k, cost := range []int64{0, 1, 3_333_333, 8_800_000_000_000} {
			x := rented(uint64(10*i+k), "physics", "p5/a", "spot", cost)
			x.Ran = ran
			d.Leases = append(d.Leases, x)
		}
	}
	d.Leases = append(d.Leases, Lease{Lease: 99, Account: "physics", Currency: "USD"}, rented(100, "", "p5/a", "on-demand", 5))
	table, err := FOCUS([]Day{d}, Billing{Cluster: "north", Currency: "EUR", Price: 1_000_000, Provider: "AWS"})
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(table.CSV())), "\n")
	if len(lines) != 1+1+5*4+1 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines[2:] {
		if !strings.Contains(line, ",USD,2026-12-01T00:00:00Z,2026-11-01T00:00:00Z,Usage,,cloud node,") || !strings.Contains(line, ",AWS,AWS,us,us,i-1,Instance,Compute,Cloud burst,p5/a,") {
			t.Error(line)
		}
	}
	if !strings.Contains(lines[1], ",EUR,") || strings.Contains(lines[1], "AWS") {
		t.Error(lines[1])
	}
}
