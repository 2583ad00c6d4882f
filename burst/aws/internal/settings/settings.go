// Package settings reads the configuration file of greylag-burst-aws and finds all its faults at once, each with its
// line.
package settings

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/config/strict"
)

// DefaultPath is the standard path of the file.
const DefaultPath = "/etc/greylag/burst-aws.toml"

// The words of markets.
const (
	Spot     = "spot"
	OnDemand = "on-demand"
)

// Settings is the file.
type Settings struct {
	CredentialsFile string `toml:"credentials_file"` // in the format of AWS; "": the SDK looks for one
	Profile         string `toml:"profile"`          // of the AWS configuration files; "": the SDK's default
	// IdentityCertificates is a PEM file with the certificates of AWS for identity documents; "": none are accepted.
	IdentityCertificates string        `toml:"identity_certificates"`
	BootTime             time.Duration `toml:"boot_time"`      // until a node has joined
	MemoryPercent        int           `toml:"memory_percent"` // of the memory of a type that gnoded finds
	Product              string        `toml:"spot_product"`   // product description of spot prices
	Regions              []Region      `toml:"region"`
	Types                []Type        `toml:"type"`
	OnDemand             Prices        `toml:"on_demand"`
}

// Region is where instances are rented, or were rented and are still listed.
type Region struct {
	Name            string   `toml:"name"`
	Types           []string `toml:"types"` // none: instances are listed and terminated only
	Markets         []string `toml:"markets" one:"spot,on-demand"`
	Template        string   `toml:"launch_template"` // ID or name
	TemplateVersion string   `toml:"launch_template_version"`
	Image           string   `toml:"image"`
	SecurityGroups  []string `toml:"security_groups"`
	InstanceProfile string   `toml:"instance_profile"`
	Endpoint        string   `toml:"endpoint"` // URL, for a VPC endpoint; "": the public one
	Zones           []Zone   `toml:"zone"`
}

// Zone is an availability zone with the subnet of its instances.
type Zone struct {
	Name   string `toml:"name"`
	Subnet string `toml:"subnet"`
}

// Type is what a site knows about an instance type.
type Type struct {
	Name     string        `toml:"name"`
	GPUType  string        `toml:"gpu_type"`  // as gnoded reports it; "": from the name that EC2 has for the GPU
	BootTime time.Duration `toml:"boot_time"` // 0: that of the file
	// InterruptionPPM is the probability of a reclaim within an hour, in millionths.
	InterruptionPPM int `toml:"interruption_ppm"`
}

// Prices are prices on demand.
type Prices struct {
	Confirmed string  `toml:"confirmed"` // date on which the site compared the shipped prices with AWS; "": never
	Prices    []Price `toml:"price"`
}

// Price is the price of an hour of an instance on demand. It replaces the shipped one.
type Price struct {
	Region string `toml:"region"`
	Type   string `toml:"type"`
	Price  string `toml:"price"`
}

// Default returns the settings of an empty file.
func Default() Settings {
	return Settings{BootTime: 5 * time.Minute, MemoryPercent: 92, Product: "Linux/UNIX"}
}

// Load reads the file at path.
func Load(path string) (*Settings, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	cfg := Default()
	faults := strict.Decode(path, []strict.Source{{Name: path, Text: text}}, &cfg, cfg.check)
	if len(faults) > 0 {
		return nil, faults
	}
	return &cfg, nil
}

// FindRegion returns the region of a name; nil if the file has none.
func (s *Settings) FindRegion(name string) *Region {
	if i := slices.IndexFunc(s.Regions, func(r Region) bool { return r.Name == name }); i >= 0 {
		return &s.Regions[i]
	}
	return nil
}

// FindType returns what the file says about an instance type.
func (s *Settings) FindType(name string) Type {
	found := Type{Name: name}
	if i := slices.IndexFunc(s.Types, func(t Type) bool { return t.Name == name }); i >= 0 {
		found = s.Types[i]
	}
	if found.BootTime == 0 {
		found.BootTime = s.BootTime
	}
	return found
}

// Subnet returns the subnet of a zone; "" if the region has no such zone.
func (r *Region) Subnet(zone string) string {
	for _, z := range r.Zones {
		if z.Name == zone {
			return z.Subnet
		}
	}
	return ""
}

// maxTypes is the number of types that EC2 describes in one call.
const maxTypes = 100

var (
	regionName = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-\d+$`)
	typeName   = regexp.MustCompile(`^[a-z0-9-]+\.[a-z0-9-]+$`)
	decimal    = regexp.MustCompile(`^\d{1,6}(\.\d{1,6})?$`)
	endpoint   = regexp.MustCompile(`^https?://[^/\s]+/?$`)
)

func (s *Settings) check(c *strict.Checker) {
	if s.CredentialsFile != "" {
		c.Absolute("credentials_file", s.CredentialsFile)
	}
	if s.IdentityCertificates != "" {
		c.Absolute("identity_certificates", s.IdentityCertificates)
	}
	c.AtLeast("boot_time", s.BootTime, time.Second)
	c.Between("memory_percent", s.MemoryPercent, 1, 100)
	if len(s.Regions) == 0 {
		c.Fault("region", "no region: add a [[region]]")
	}
	names := map[string]bool{}
	for i := range s.Regions {
		r, at := &s.Regions[i], fmt.Sprintf("region[%d]", i)
		if names[r.Name] {
			c.Fault(at+".name", "the region %q is there already", r.Name)
		}
		names[r.Name] = true
		r.check(c, at)
	}
	for i, t := range s.Types {
		at := fmt.Sprintf("type[%d]", i)
		if !typeName.MatchString(t.Name) {
			c.Fault(at+".name", "%q is not an instance type, such as g5.xlarge", t.Name)
		}
		c.Between(at+".interruption_ppm", t.InterruptionPPM, 0, 1_000_000)
		if t.BootTime < 0 {
			c.Fault(at+".boot_time", "%v is negative", t.BootTime)
		}
	}
	s.OnDemand.check(c)
}

func (r *Region) check(c *strict.Checker, at string) {
	if !regionName.MatchString(r.Name) {
		c.Fault(at+".name", "%q is not a region, such as us-east-1", r.Name)
	}
	if r.Endpoint != "" && !endpoint.MatchString(r.Endpoint) {
		c.Fault(at+".endpoint", "%q is not a URL without path, such as https://vpce-1.ec2.us-east-1.vpce.amazonaws.com", r.Endpoint)
	}
	if len(r.Types) > maxTypes {
		c.Fault(at+".types", "%d instance types, at most %d", len(r.Types), maxTypes)
	}
	for i, name := range r.Types {
		if !typeName.MatchString(name) || slices.Index(r.Types, name) != i {
			c.Fault(fmt.Sprintf("%s.types[%d]", at, i), "%q is not an instance type, such as g5.xlarge, or is repeated", name)
		}
	}
	if len(r.Types) == 0 {
		return
	}
	if r.Template == "" && r.Image == "" {
		c.Fault(at+".launch_template", "no launch_template and no image: set at least one of them")
	}
	if r.Template == "" && r.TemplateVersion != "" {
		c.Fault(at+".launch_template_version", "launch_template is not set")
	}
	if len(r.Zones) == 0 {
		c.Fault(at+".zone", "no zone: add a [[region.zone]] with name and subnet")
	}
	for i, z := range r.Zones {
		where := fmt.Sprintf("%s.zone[%d]", at, i)
		if z.Name == "" || z.Subnet == "" {
			c.Fault(where, "name and subnet must both be set")
		}
		if slices.IndexFunc(r.Zones, func(o Zone) bool { return o.Name == z.Name }) != i {
			c.Fault(where+".name", "the zone %q is there already", z.Name)
		}
	}
}

func (p *Prices) check(c *strict.Checker) {
	if _, err := time.Parse(time.DateOnly, p.Confirmed); p.Confirmed != "" && err != nil {
		c.Fault("on_demand.confirmed", "%q is not a date, such as 2026-11-30", p.Confirmed)
	}
	for i, price := range p.Prices {
		at := fmt.Sprintf("on_demand.price[%d]", i)
		if !regionName.MatchString(price.Region) || !typeName.MatchString(price.Type) {
			c.Fault(at, "region and type must be set, such as us-east-1 and g5.xlarge")
		}
		if !decimal.MatchString(price.Price) {
			c.Fault(at+".price", "%q is not a decimal number in USD, such as \"1.006\"", price.Price)
		}
	}
}
