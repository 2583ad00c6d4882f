package clusterdoc

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

const burstFile = `
[burst]
enabled = true
currency = "EUR"
monthly_limit = "10000000000.000001"
regions = ["eu-west-1", "eu-north-1"]
max_nodes = 8
idle_time = "2m"
interruption_risk = 0.125
staging_time = "3m"
[[staging_credentials]]
account = "physics"
user = "data"
secret = "s3"
[[burst_budget]]
account = "physics"
monthly = 2500.50
[[burst_budget]]
account = "chem"
monthly = 0
[[partition]]
name = "main"
nodes = ["ALL"]
default = true
burst = "allow"
[[partition]]
name = "cloud"
nodes = ["CLOUD"]
[[qos]]
name = "standard"
burst = "only"
burst_value = 1.5
burst_max_wait = "4h"
spot_share = 30
`

// TestBurstRules: the rules of cloud nodes are read, and written as they are read.
func TestBurstRules(t *testing.T) {
	read, err := ReadPolicy("policy.toml", []byte(burstFile))
	if err != nil {
		t.Fatal(err)
	}
	b := read.Burst
	if !b.On || b.Currency != "EUR" || b.MonthlyLimit != 10_000_000_000_000_001 || len(b.Regions) != 2 || b.MaxNodes != 8 || b.InterruptionRisk != 125_000 ||
		!reflect.DeepEqual(b.Budgets, []cluster.RentalBudget{{Account: "physics", Monthly: 2_500_500_000}, {Account: "chem"}}) {
		t.Errorf("read %+v", b)
	}
	if got, found := read.StagingCredentialsOf("physics"); !found || got != (cluster.StagingCredentials{Account: "physics", User: "data", Secret: "s3"}) || b.StagingTime != 3*time.Minute {
		t.Errorf("read %+v, %s", got, b.StagingTime)
	}
	if q := read.QOS[0]; q.Burst != cluster.BurstOnly || q.BurstValue != 1_500_000 || q.MinOnDemand != 70 {
		t.Errorf("read %+v", q)
	}
	if part, found := read.Cloud(); !found || part.Name != "cloud" || read.Partitions[0].Burst != cluster.BurstAllow {
		t.Errorf("read %+v", read.Partitions)
	}
	text, err := WritePolicy(&read)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadPolicy("policy.toml", text)
	normal(&read)
	normal(&again)
	if err != nil || !reflect.DeepEqual(read, again) {
		t.Errorf("%v: read %+v\nwant %+v\nfrom\n%s", err, again, read, text)
	}
}

// TestBurstFaults: each fault of the rules of cloud nodes is reported with its key and line.
func TestBurstFaults(t *testing.T) {
	for text, want := range map[string]string{
		"[[staging_credentials]]\naccount = \"a\"\nuser = \"u\"\nsecret = \"../x\"": "staging_credentials[0].secret: \"../x\" cannot name a secret",
		"[burst]\ncurrency = \"usd\"":                                          "2: burst.currency: \"usd\" is not a currency: want three upper-case letters",
		"[burst]\nenabled = true\nmonthly_limit = 1":                           "2: burst.enabled: no partition has nodes",
		"[burst]\nenabled = true":                                              "burst.monthly_limit: must be above 0",
		"[burst]\nmonthly_limit = -1":                                          "2: burst.monthly_limit: invalid amount: \"-1\"",
		"[burst]\nmonthly_limit = 1000000000000.01":                            "2: burst.monthly_limit: invalid amount: 1000000000000.01 is above",
		"[burst]\nmonthly_limit = 1e300":                                       "is above 1000000000000",
		"[burst]\nmonthly_limit = nan":                                         "is not a decimal number",
		"[burst]\nmonthly_limit = \"0.0000001\"":                               "at most six decimals",
		"[burst]\nmonthly_limit = true":                                        "expected a number, found true",
		"[burst]\ninterruption_risk = 1.000001":                                "2: burst.interruption_risk: 1.000001 is out of range (0 to 1)",
		"[burst]\ninterruption_risk = 5000":                                    "burst.interruption_risk: 5000.00 is out of range",
		"[burst]\nboot_timeout = \"0s\"":                                       "2: burst.boot_timeout: 0s is out of range",
		"[burst]\nregions = [\"a\", \"a\"]":                                    "2: burst.regions[1]: region \"a\" is listed twice",
		"[burst]\nregions = [\"\"]":                                            "2: burst.regions[0]: one region has no name",
		"[burst]\nmax_nodes = 4294967297":                                      "2: burst.max_nodes: 4294967297 is out of range",
		"[burst]\non = true":                                                   "did you mean enabled?",
		"[[burst_budget]]\naccount = \"a\"\n[[burst_budget]]\naccount = \"a\"": "4: burst_budget[1].account: account \"a\" has two budgets",
		"[[burst_budget]]\nmonthly = 3":                                        "1: burst_budget[0].account: one account has no name",
		"[[partition]]\nname = \"p\"\nburst = \"always\"":                      "3: partition[0].burst: \"always\" is not never, allow or only",
		"[[partition]]\nname = \"p\"\nburst = 1":                               "3: partition[0].burst: expected a string",
		"[[partition]]\nname = \"p\"\nnodes = [\"CLOUD\", \"n1\"]":             "3: partition[0].nodes[0]: partition \"p\": \"CLOUD\" cannot be combined",
		"[[partition]]\nname = \"p\"\nnodes = [\"cloud-[1-2]\"]":               "3: partition[0].nodes[0]: partition \"p\": names with the prefix \"cloud-\"",
		"[[partition]]\nname = \"p\"\nnodes = [\"CLOUD\"]\ndefault = true":     "4: partition[0].default: partition \"p\" has the leased nodes and cannot be the default partition",
		"[[partition]]\nname = \"p\"\nnodes = [\"CLOUD\"]\nburst = \"never\"":  "4: partition[0].burst: partition \"p\": its jobs always run on leased nodes",
		"[[partition]]\nname = \"p\"\nnodes = [\"CLOUD\"]\n[[partition]]\nname = \"q\"\nnodes = [\"CLOUD\"]": "6: partition[1].nodes: partitions \"p\" and \"q\" both have the leased nodes; only one may",
		"[[qos]]\nname = \"standard\"\nspot_share = 101":                                                     "3: qos[0].spot_share: 101 is out of range",
		"[[qos]]\nname = \"standard\"\nburst_value = \"much\"":                                               "3: qos[0].burst_value: invalid amount",
		"[[qos]]\nname = \"standard\"\nburst_max_wait = \"-1s\"":                                             "3: qos[0].burst_max_wait: -1s is out of range",
	} {
		_, err := ReadPolicy("policy.toml", []byte(text+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %q", text, err, want)
		}
	}
}
