package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func load(t *testing.T, text string) (*Settings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "burst-aws.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}

// TestExample: the shipped file is valid, and so are its keys behind a #.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../../../etc/burst-aws.toml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := load(t, string(text))
	if err != nil || cfg.Regions[0].Subnet("us-east-1b") == "" || cfg.FindRegion("us-east-1") == nil {
		t.Fatalf("%+v, %v", cfg, err)
	}
	if want := Default(); cfg.BootTime != want.BootTime || cfg.MemoryPercent != want.MemoryPercent || cfg.Product != want.Product {
		t.Errorf("%+v", cfg)
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "#"); ok && !strings.HasPrefix(rest, " ") && strings.TrimSpace(rest) != "" {
			line = rest
		}
		all = append(all, line)
	}
	if cfg, err = load(t, strings.Join(all, "")); err != nil {
		t.Fatal(err)
	}
	if kind := cfg.FindType("g5.xlarge"); kind.BootTime != 4*time.Minute || kind.InterruptionPPM != 50000 || cfg.OnDemand.Confirmed == "" {
		t.Errorf("%+v", cfg)
	}
}

// TestFaults: each fault is reported with its line.
func TestFaults(t *testing.T) {
	_, err := load(t, `credentials_file = "keys"
memory_percent = 0
boot_tme = "4m"
[[region]]
name = "us-east"
types = ["g5", "g5.xlarge", "g5.xlarge"]
markets = ["cheap"]
endpoint = "vpce-1"
launch_template_version = "1"
[[region]]
name = "us-east-1"
types = ["g5.xlarge"]
image = "ami-1"
[[region.zone]]
name = "us-east-1a"
[[region.zone]]
name = "us-east-1a"
subnet = "subnet-1"
[[region]]
name = "us-east-1"
[[type]]
name = "g5"
interruption_ppm = 2000000
boot_time = "-1s"
[on_demand]
confirmed = "30 November"
[[on_demand.price]]
region = "us-east-1"
type = "g5.xlarge"
price = "1e3"
[[on_demand.price]]
price = "0.5"
`)
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{
		":1: credentials_file: ", ":2: memory_percent: ", ":3: boot_tme: unknown key; did you mean boot_time?", ":5: region[0].name: ", ":6: region[0].types[0]: ",
		":6: region[0].types[2]: ", ":7: region[0].markets: ", ":8: region[0].endpoint: ", ":9: region[0].launch_template_version: ",
		"region[0].launch_template: no launch_template", "region[0].zone: no zone", "region[1].zone[0]: name and subnet", "region[1].zone[1].name: the zone", "region[2].name: the region",
		"type[0].name: ", "type[0].interruption_ppm: ", "type[0].boot_time: ", "on_demand.confirmed: ", "on_demand.price[0].price: ", "on_demand.price[1]: region and type",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no fault %q in\n%v", want, err)
		}
	}
	if _, err := load(t, ""); err == nil || !strings.Contains(err.Error(), "no region") {
		t.Errorf("an empty file: %v", err)
	}
}

// TestShippedPrices: each price is a decimal number, and holds for a year unless the site confirms it.
func TestShippedPrices(t *testing.T) {
	for region, prices := range shipped {
		for kind, price := range prices {
			if !regionName.MatchString(region) || !typeName.MatchString(kind) || !decimal.MatchString(price) {
				t.Errorf("%s %s %s", region, kind, price)
			}
		}
	}
	cfg := Default()
	at := func(year int) time.Time { return time.Date(year, 11, 27, 0, 0, 0, 0, time.UTC) }
	if cfg.Price("us-east-1", "g5.xlarge", at(2026)) != "1.006" || cfg.Price("us-east-1", "g5.xlarge", at(2027)) != "" ||
		cfg.Price("us-east-2", "g5.xlarge", at(2026)) != "" {
		t.Error("a shipped price")
	}
	cfg.OnDemand = Prices{Confirmed: "2027-11-01", Prices: []Price{{"us-east-1", "g6.xlarge", "0.7"}}}
	if cfg.Price("us-east-1", "g5.xlarge", at(2027)) != "1.006" || cfg.Price("us-east-1", "g6.xlarge", at(2040)) != "0.7" {
		t.Error("a price of the site")
	}
}
