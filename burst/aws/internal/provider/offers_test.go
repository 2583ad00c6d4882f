package provider

import (
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/burst/aws/internal/ec2wire"
	"github.com/greylag/greylag/burst/aws/internal/settings"
	"github.com/greylag/greylag/internal/burst"
)

// TestOffers: each type in each zone with a subnet has its present spot price and its list price.
func TestOffers(t *testing.T) {
	c := newCloud(t)
	c.PageSize = 1
	list, err := c.offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range list {
		got = append(got, o.Name+" "+o.Market+" "+o.Price)
		if o.Region != "us-east-1" || !o.PricedAt.Equal(start) || o.BootSeconds != 300 {
			t.Errorf("offer %+v", o)
		}
	}
	want := []string{
		"g5.xlarge/us-east-1a spot 0.390000", "g5.xlarge/us-east-1a on-demand 1.006",
		"g5.xlarge/us-east-1b spot 0.450000", "g5.xlarge/us-east-1b on-demand 1.006",
		"p5.48xlarge/us-east-1b spot 21.500000", "p5.48xlarge/us-east-1b on-demand 55.04",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("offers\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if o := list[0]; o.CPUs != 4 || o.MemoryBytes != 16384<<20*92/100 || o.GPUs != 1 || o.GPUType != "a10g" || o.GPUMemoryBytes != 22888<<20 {
		t.Errorf("offer %+v", o)
	}
	if o := list[4]; o.GPUs != 8 || o.GPUType != "h100" {
		t.Errorf("offer %+v", o)
	}
}

// TestSitePrices: the file replaces list prices and what the program knows of types.
func TestSitePrices(t *testing.T) {
	c := newCloud(t, "[[region]]\n", `[[type]]
name = "g5.xlarge"
gpu_type = "a10"
boot_time = "4m"
interruption_ppm = 20000

[on_demand]
confirmed = "2027-10-01"

[[on_demand.price]]
region = "us-east-1"
type = "g5.xlarge"
price = "1.10"

[[region]]
`)
	c.now = start.AddDate(1, 0, 0)
	list, err := c.offers(t.Context())
	if err != nil || len(list) != 6 {
		t.Fatalf("offers %+v, %v", list, err)
	}
	if o := list[0]; o.GPUType != "a10" || o.BootSeconds != 240 || o.InterruptionPPM != 20000 {
		t.Errorf("spot offer %+v", o)
	}
	if o := list[1]; o.Price != "1.10" || o.InterruptionPPM != 0 {
		t.Errorf("offer on demand %+v", o)
	}
	c.cfg.OnDemand.Confirmed = ""
	if list, err = c.offers(t.Context()); err != nil || len(list) != 5 || list[len(list)-1].Market != settings.Spot {
		t.Errorf("with prices of more than a year ago: %+v, %v", list, err)
	}
}

// TestOffersOfOneRegion: a region that does not answer has no offers, and does not hide those of others.
func TestOffersOfOneRegion(t *testing.T) {
	setCredentials(t)
	west := newServer(func() time.Time { return start })
	west.Region = "us-west-2"
	west.Inject(ec2wire.Fault{Code: "UnauthorizedOperation", Status: 403})
	c := newCloud(t, "[[region]]\n", `[[region]]
name = "us-west-2"
endpoint = "`+serve(t, west)+`"
types = ["g5.xlarge"]
launch_template = "lt-1"

[[region.zone]]
name = "us-west-2a"
subnet = "subnet-a"

[[region]]
`)
	if list, err := c.offers(t.Context()); err != nil || len(list) != 6 || !strings.Contains(c.messages.String(), "us-west-2") {
		t.Errorf("offers %+v, %v", list, err)
	}
	c.Inject(ec2wire.Fault{Code: "RequestLimitExceeded", Status: 503})
	_, err := c.offers(t.Context())
	wantFailure(t, err, burst.FailureThrottled, burst.ExitTryLater)
}

func TestGPUTypes(t *testing.T) {
	for name, want := range map[string]string{"A10G": "a10g", "L40S": "l40s", "T4": "t4", "RTX PRO Server 6000": "rtxpro6000"} {
		if got := gpuType(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestValidate: a working configuration has no problems, and a faulty one has all of them.
func TestValidate(t *testing.T) {
	c := newCloud(t)
	if problems, err := c.validate(t.Context()); err != nil || len(problems) != 0 || len(c.Instances()) != 0 {
		t.Errorf("problems %v, %v", problems, err)
	}
	for want, change := range map[string]func(){
		"instances cannot be listed": func() { c.Inject(ec2wire.Fault{Action: "DescribeInstances", Code: "UnauthorizedOperation"}) },
		"spot requests cannot be listed": func() {
			c.Inject(ec2wire.Fault{Action: "DescribeSpotInstanceRequests", Code: "UnauthorizedOperation"})
		},
		"offers:": func() { c.Inject(ec2wire.Fault{Action: "DescribeSpotPriceHistory", Code: "UnauthorizedOperation"}) },
		"a launch in us-east-1b would fail": func() {
			c.Inject(ec2wire.Fault{Action: "RunInstances", Zone: "us-east-1b", Code: "UnauthorizedOperation"})
		},
		"subnet subnet-9":                      func() { c.cfg.Regions[0].Zones[0].Subnet = "subnet-9" },
		"subnet subnet-a is not in the zone":   func() { c.cfg.Regions[0].Zones[1].Subnet = "subnet-a" },
		"network interfaces":                   func() { c.cfg.Regions[0].Template = "interfaces" },
		"it has no image":                      func() { c.cfg.Regions[0].Template = "lt-2" },
		"launch template lt-7":                 func() { c.cfg.Regions[0].Template = "lt-7" },
		"no price of g6f.large on demand":      func() { c.Types[1].Name, c.cfg.Regions[0].Types[1] = "g6f.large", "g6f.large" },
		"p5.48xlarge has no spot price in the": func() { c.Prices = nil },
		"InvalidInstanceType":                  func() { c.cfg.Regions[0].Types[0] = "g9.xlarge" },
		"no AWS credentials":                   func() { t.Setenv("AWS_ACCESS_KEY_ID", "") },
	} {
		c = newCloud(t)
		change()
		problems, err := c.validate(t.Context())
		if err != nil || !strings.Contains(strings.Join(problems, "\n"), want) {
			t.Errorf("problems %q, %v; want %q", problems, err, want)
		}
	}
}
