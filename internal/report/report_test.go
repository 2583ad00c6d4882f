package report

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/pkg/cluster"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPeriods(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	for _, c := range []struct {
		kind, at, name string
		zone           *time.Location
		hours          float64
	}{
		{"day", "2026-03-30T00:30:00Z", "2026-03-29", time.UTC, 24},
		{"day", "2026-03-30T00:30:00Z", "2026-03-29", berlin, 23},
		{"day", "2026-10-26T09:00:00Z", "2026-10-25", berlin, 25},
		{"week", "2026-01-01T12:00:00Z", "2025-W52", time.UTC, 168},
		{"week", "2026-01-05T00:00:00Z", "2026-W01", time.UTC, 168},
		{"month", "2026-03-01T00:00:00Z", "2026-02", time.UTC, 28 * 24},
		{"month", "2026-03-31T23:00:00Z", "2026-03", berlin, 31*24 - 1}, // already April in that zone
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		must(t, err)
		p, err := Last(c.kind, at.In(c.zone))
		must(t, err)
		if p.Name != c.name || p.To.Sub(p.From).Hours() != c.hours {
			t.Errorf("the last %s before %s in %s is %s of %v h, want %s of %v h", c.kind, c.at, c.zone, p.Name, p.To.Sub(p.From).Hours(), c.name, c.hours)
		}
	}
	p, err := Last("month", time.Date(2026, 11, 21, 0, 0, 0, 0, berlin))
	must(t, err)
	if days := p.Days(); len(days) != 32 || days[25].Sub(days[24]) != 25*time.Hour {
		t.Errorf("the days of %s are %v", p.Name, days)
	}
	if days := p.DaysBefore(31); len(days) != 32 || !days[31].Equal(p.To) {
		t.Errorf("31 days end with %v", days)
	}
}

func TestDecimals(t *testing.T) {
	for _, c := range []struct {
		n      int64
		digits int
		want   string
	}{{0, 3, "0.000"}, {-5, 3, "-0.005"}, {12345, 3, "12.345"}, {7, 0, "7"}, {-1 << 63, 6, "-9223372036854.775808"}} {
		if got := decimal(c.n, c.digits); got != c.want {
			t.Errorf("%d with %d decimals is %s, want %s", c.n, c.digits, got, c.want)
		}
	}
	if hours(3_600_000) != 1000 || hours(1799) != 0 || hours(1800) != 1 {
		t.Error("hours are rounded wrongly")
	}
}

// hostile returns a table with text that could break a format.
func hostile() *Table {
	t := &Table{Columns: columns(texts("word"), numbers(3, "number"))}
	for _, w := range []string{`a,"b"`, "line\nline", "", "\x1b[31m", "ünï|x", "<&>", "=1+1", "@x", "-", "+1"} {
		t.Rows = append(t.Rows, row(w, int64(-1500)))
	}
	t.Rows = append(t.Rows, []Value{Word("none"), None()})
	return t
}

func TestFormatsAreReadBack(t *testing.T) {
	table := hostile()
	lines, err := csv.NewReader(strings.NewReader(string(table.CSV()))).ReadAll()
	must(t, err)
	objects := json.NewDecoder(strings.NewReader(string(table.JSONL())))
	for i, r := range table.Rows {
		var o struct {
			Word   string
			Number *float64
		}
		must(t, objects.Decode(&o))
		if strings.TrimPrefix(lines[i+1][0], "'") != r[0].Text || o.Word != r[0].Text || len(lines[i+1][0]) > 0 && strings.Contains("=+-@", lines[i+1][0][:1]) {
			t.Errorf("row %d is %q and %q, want %q", i, lines[i+1], o.Word, r[0].Text)
		}
		if r[1].Null != (o.Number == nil) || !r[1].Null && (*o.Number != -1.5 || lines[i+1][1] != "-1.500") {
			t.Errorf("row %d has the number %v and %q", i, o.Number, lines[i+1][1])
		}
	}
	if text := string(table.Text()); strings.ContainsRune(text, 0x1b) || strings.Count(text, "\n") != len(table.Rows)+1 {
		t.Errorf("the text is %q", text)
	}
}

// TestTablesForPeopleAreNarrow checks that lines with usual names fit a terminal, and that omitted
// columns are in the other formats.
func TestTablesForPeopleAreNarrow(t *testing.T) {
	key := tally.Key{Account: "physics", User: "johndoe", Partition: "main", QOS: "standard", GPUType: "h100"}
	rows := []Row{{Key: key, Tally: tally.Tally{GPU: 3_600_000_000, CPU: 28_800_000_000, CPUHeld: 1, MemHeld: 1, Attempts: 1, Kept: 1}}}
	rows[0].Ended[0] = 1234
	tables := []Table{Credits([]Credit{{Node: "physics/johndoe", Kind: "charge", Class: "purchase", Amount: 12_345_000_000}})}
	for _, name := range Reports() {
		table, _ := Make(name, rows)
		tables = append(tables, table)
	}
	for _, table := range tables {
		for line := range strings.Lines(string(table.Text())) {
			if len(line) > 80 {
				t.Errorf("%s: %d columns: %s", table.Name, len(line)-1, line)
			}
		}
		if head, _, _ := strings.Cut(string(table.CSV()), "\n"); strings.Count(head, ",") != len(table.Columns)-1 {
			t.Errorf("%s: a column is missing in %s", table.Name, head)
		}
	}
}

// TestSeldomColumns checks that the text omits outcomes that no job had and shows the others, so
// that the numbers add up.
func TestSeldomColumns(t *testing.T) {
	key := tally.Key{Partition: "main", QOS: "standard"}
	rows := []Row{{Key: key}, {Key: key}}
	rows[0].Ended[0] = 1
	table, _ := Make("jobs", rows)
	none, _, _ := strings.Cut(string(table.Text()), "\n")
	rows[1].Ended[cluster.Cancelled-cluster.Completed] = 2
	table, _ = Make("jobs", rows)
	some, _, _ := strings.Cut(string(table.Text()), "\n")
	if strings.Contains(none, "CANCELLED") || !strings.Contains(some, "CANCELLED") || strings.Contains(some, "NODE_FAIL") {
		t.Errorf("without cancelled jobs %s; with some %s", none, some)
	}
	if csv := string(table.CSV()); !strings.Contains(csv, "node_fail") {
		t.Errorf("CSV lacks a column: %s", csv)
	}
}

func TestWriteIsStable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "usage", "csv", "period=2026-06-01")
	p, err := PeriodOf("day", time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))
	must(t, err)
	write := func(text string, seq uint64) Outcome {
		m := Manifest{Report: "usage", Format: "csv", State: "closed", WatermarkSeq: seq}
		m.Fill(p, "usage.csv", []byte(text))
		o, err := Write(dir, m, []byte(text))
		must(t, err)
		return o
	}
	got := []Outcome{write("a\n", 1), write("a\n", 1), write("a\n", 2), write("b\n", 2), write("b\n", 2)}
	if want := [...]Outcome{Written, Unchanged, Replaced, Replaced, Unchanged}; [5]Outcome(got) != want {
		t.Errorf("outcomes %v, want %v", got, want)
	}
	m, err := Verify(dir)
	if must(t, err); m.From != "2026-06-01T00:00:00Z" || m.To != "2026-06-02T00:00:00Z" || m.WatermarkSeq != 2 {
		t.Errorf("the manifest is %+v", m)
	}
	files, err := os.ReadDir(dir)
	if must(t, err); len(files) != 2 {
		t.Errorf("the folder holds %v", files)
	}
	must(t, os.WriteFile(filepath.Join(dir, "usage.csv"), []byte("c\n"), 0o644))
	if _, err := Verify(dir); !errors.Is(err, ErrChanged) {
		t.Errorf("a changed report passes: %v", err)
	}
}

// series returns 30 days of a value, and today.
func series(mean, today int64, days int) []Series {
	s := Series{Scope: "physics", Days: make([]int64, 31)}
	for i := range days {
		s.Days[29-i] = mean
	}
	s.Days[30] = today
	return []Series{s}
}

// TestAnomaliesOfThoseWhoWereIdle checks that days before the first activity of a scope do not
// count, and idle days after it do.
func TestAnomaliesOfThoseWhoWereIdle(t *testing.T) {
	day := Period{Name: "2026-06-12"}
	idle := series(100_000_000, 120_000_000, 10) // active on the last 10 days
	if got := Anomalies(idle, day, true, 0); got != nil {
		t.Errorf("an alert for a new user with a usual day: %v", got)
	}
	if idle[0].Before = true; len(Anomalies(idle, day, true, 0)) != 1 { // the mean of 30 days is 33
		t.Error("no alert for an idle user who suddenly spends much")
	}
	short := series(0, 20_000_000, 0)
	short[0].Before = true
	if got := Anomalies(short, day, true, 10_000_000); len(got) != 1 || got[0].Limit != "0.000000" {
		t.Errorf("a month of nothing, then 20 credits: %v", got)
	}
	before := []Row{{Key: tally.Key{Account: "physics", User: "ann"}, Tally: tally.Tally{GPU: 5}}, {Key: tally.Key{Account: "law", User: "bob"}}}
	days := []Day{{Usage: []Row{{Key: tally.Key{Account: "physics", User: "ann"}, Tally: tally.Tally{GPU: 7}}, {Key: tally.Key{Account: "law", User: "bob"}, Tally: tally.Tally{GPU: 9}}}}}
	all, spent := Dailies(days, before)
	got := ""
	for _, s := range all {
		got += fmt.Sprintln(s.Scope, s.Days, s.Before)
	}
	if want := " [16] true\nlaw [9] false\nlaw/bob [9] false\nphysics [7] true\nphysics/ann [7] true\n"; got != want || spent {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestAnomaliesAreStrict(t *testing.T) {
	day := Period{Name: "2026-06-12"}
	for _, c := range []struct {
		mean, today int64
		days        int
		alert       bool
	}{
		{100_000_000, 130_000_000, 30, false}, {100_000_000, 130_000_001, 30, true}, // scenario 43
		{100_000_000, 200_000_000, 6, false}, {100_000_000, 200_000_000, 7, true}, {100_000_000, 130_000_000, 7, false},
		{1_000_000, 9_000_000, 30, false}, // below the floor
		{1 << 58, 1 << 60, 30, true},
	} {
		got := Anomalies(series(c.mean, c.today, c.days), day, true, 10_000_000)
		if (len(got) == 1) != c.alert {
			t.Errorf("a mean of %d over %d days and %d today: %v", c.mean, c.days, c.today, got)
		}
	}
	if a := Anomalies(series(100_000_000, 143_250_000, 30), day, true, 0)[0]; a.ID != "spend.anomaly:physics:2026-06-12" || a.Value != "143.250000" || a.Limit != "100.000000" {
		t.Errorf("%+v", a)
	}
}

func TestStandingAlerts(t *testing.T) {
	now := time.Date(2026, 6, 12, 8, 0, 0, 0, time.UTC)
	s := Standing{
		Budgets: []BudgetStanding{{"a", "month", 1000, 499}, {"b", "month", 1000, 500}, {"c", "day", 1000, 999}, {"d", "ever", 1000, 1200}},
		Buckets: []Expiring{{1, "a", 5, now.AddDate(0, 0, 31)}, {2, "a", 5, now.AddDate(0, 0, 30)}, {3, "a", 5, now.AddDate(0, 0, 6)}, {4, "a", 5, now.Add(time.Hour)}, {5, "a", 0, now.Add(time.Hour)}},
		Debts:   []Owing{{"a", 7}},
	}
	got := ""
	for _, a := range s.Alerts(now) {
		got += a.ID + "\n"
	}
	const want = "budget.used:b:2026-06:50\nbudget.used:c:2026-06-12:80\nbudget.used:d::100\nbucket.expires:2:30\nbucket.expires:3:7\nbucket.expires:4:1\naccount.debt:a:2026-06-12\n"
	if got != want {
		t.Errorf("alerts\n%swant\n%s", got, want)
	}
}

// TestFOCUS checks with random rows that each quantity and cost is in FOCUS once, and that every
// table passes the check.
func TestFOCUS(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	from := time.Date(2026, 6, 12, 0, 0, 0, 0, time.UTC)
	for range 300 {
		d := Day{From: from, To: from.AddDate(0, 0, 1)}
		var quantity, effective, billed int64
		for _, user := range []string{"ann", "bob"} {
			millis := r.Int64N(1e10) * int64(r.IntN(4)) / 3 // some used nothing that day and pay for another
			d.Usage = append(d.Usage, Row{Key: tally.Key{Account: "physics", User: user, GPUType: "h100"}, Tally: tally.Tally{GPU: millis}})
			quantity += scaled(millis, 10, 36)
			for _, class := range []string{"promo", "grant", "purchase", ""} {
				c := Credit{Node: "physics/" + user, Kind: [...]string{"charge", "overshoot", "refund", "lien"}[r.IntN(4)], Class: class, GPUType: "h100", Amount: r.Int64N(1 << 50), Late: r.IntN(2) == 0}
				d.Credits = append(d.Credits, c)
				if class == "purchase" || class == "" {
					effective += c.Spent()
				}
			}
		}
		bought := r.Int64N(1 << 40)
		d.Credits = append(d.Credits, Credit{Node: "physics", Kind: "grant", Class: "purchase", Bucket: 9, Amount: bought}, Credit{Node: "physics", Kind: "expire", Class: "promo", Bucket: 8, Amount: 5})
		billed += bought
		table, err := FOCUS([]Day{d}, Billing{Cluster: "north", Currency: "EUR", Price: 1_000_000})
		must(t, err)
		sums := make(map[string]int64)
		for _, line := range table.Rows {
			for i, c := range table.Columns {
				sums[c.Name] += line[i].Number
			}
		}
		if sums["ConsumedQuantity"] != quantity || sums["EffectiveCost"] != effective || sums["BilledCost"] != billed {
			t.Fatalf("quantity %d of %d, effective %d of %d, billed %d of %d", sums["ConsumedQuantity"], quantity, sums["EffectiveCost"], effective, sums["BilledCost"], billed)
		}
	}
}

func TestCheckFOCUSFindsFaults(t *testing.T) {
	from := time.Date(2026, 6, 12, 0, 0, 0, 0, time.UTC)
	day := []Day{{From: from, To: from.AddDate(0, 0, 1), Usage: []Row{{Key: tally.Key{Account: "a", User: "u"}, Tally: tally.Tally{GPU: 3_600_000}}}}}
	for column, bad := range map[string]Value{
		"BilledCost": None(), "ChargeCategory": Word("Use"), "ChargeClass": Word("Late"), "ChargePeriodEnd": Word("2026-06-12T00:00:00Z"),
		"BillingPeriodStart": Word("2026-06-01"), "Tags": Word("[1]"), "PricingUnit": None(), "ConsumedUnit": None(), "BillingCurrency": Word("EURO"), "SkuId": Word(""), "ChargeFrequency": Word("Often"),
		"ListUnitPrice": None(), "SkuPriceId": None(), "ConsumedQuantity": None(), "ContractedUnitPrice": Number(7_000_000_000_000), "PricingCurrencyListUnitPrice": None(),
	} {
		table, err := FOCUS(day, Billing{Cluster: "c", Currency: "EUR"})
		must(t, err)
		for i, c := range table.Columns {
			if c.Name == column {
				table.Rows[0][i] = bad
			}
		}
		if err := CheckFOCUS(&table); !errors.Is(err, ErrFOCUS) {
			t.Errorf("%s %+v passes", column, bad)
		}
	}
}

func TestXDMoD(t *testing.T) {
	at := func(h int) time.Time { return time.Date(2026, 6, 12, h, 0, 0, 0, time.UTC) }
	j := Ended{
		Ref: "7_3", ID: "10", Partition: "main", QOS: "standard", Account: "physics", User: "ann", UID: 1001, GID: 100, Submitted: at(1), Eligible: at(1), Start: at(2), End: at(4),
		ExitCode: 1, State: "FAILED", Nodes: 2, NodeList: "n[1-2]", CPUs: 16, ReqCPUs: 16, ReqNodes: 2, ReqGPUs: 8, ReqMemory: 64 << 30, GPUTypes: "h100",
		TRES: []Count{{"cpu", 16}, {"gpu", 8}, {"gpu:h100", 8}, {"mem", 65536}, {"node", 2}}, TimeLimit: 26 * time.Hour, Name: "a|b\nc",
	}
	const want = "7_3|10|north|main|standard|physics|100|100|ann|1001|2026-06-12T01:00:00|2026-06-12T01:00:00|2026-06-12T02:00:00|2026-06-12T04:00:00|02:00:00|1:0|FAILED|2|16|16|65536M|" +
		"cpu=16,mem=65536M,node=2,gres/gpu=8,gres/gpu:h100=8|cpu=16,mem=65536M,node=2,gres/gpu=8,gres/gpu:h100=8|1-02:00:00|n[1-2]|a?b?c\n"
	if got := string(XDMoD("north", []Ended{j})); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
