package provider

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/greylag/greylag/burst/aws/internal/settings"
	"github.com/greylag/greylag/internal/burst"
)

const currency = "USD"

// offer is a type in a zone.
type offer struct{ kind, zone string }

// offers returns the prices of all regions that answer. It fails if none does.
func (p *Provider) offers(ctx context.Context) ([]burst.Offer, error) {
	all := []burst.Offer{}
	var failed error
	answered := false
	for i := range p.cfg.Regions {
		region := &p.cfg.Regions[i]
		if len(region.Types) == 0 {
			continue
		}
		list, err := p.regionOffers(ctx, region)
		if err != nil {
			p.log.Printf("region %s: no offers: %v", region.Name, err)
			failed = err
			continue
		}
		answered = true
		all = append(all, list...)
	}
	if !answered && failed != nil {
		return nil, failed
	}
	return all, nil
}

func (p *Provider) regionOffers(ctx context.Context, region *settings.Region) ([]burst.Offer, error) {
	client, err := p.client(ctx, region)
	if err != nil {
		return nil, err
	}
	machines, err := p.machines(ctx, client, region)
	if err != nil {
		return nil, err
	}
	now := p.now()
	spot := map[offer]string{}
	if slices.Contains(markets(region), settings.Spot) {
		if spot, err = p.spotPrices(ctx, client, region, now); err != nil {
			return nil, err
		}
	}
	places, err := p.places(ctx, client, region)
	if err != nil {
		return nil, err
	}
	var all []burst.Offer
	for _, place := range places {
		o, ok := machines[place.kind]
		if !ok {
			continue
		}
		o.Name, o.Region, o.PricedAt = place.kind+"/"+place.zone, region.Name, now
		for _, market := range markets(region) {
			o.Market, o.Price = market, spot[place]
			if market == settings.OnDemand {
				o.Price, o.InterruptionPPM = p.cfg.Price(region.Name, place.kind, now), 0
			}
			if o.Price != "" {
				all = append(all, o)
			}
		}
	}
	return all, nil
}

// markets returns the markets of a region: both if its table names none.
func markets(region *settings.Region) []string {
	if len(region.Markets) == 0 {
		return []string{settings.Spot, settings.OnDemand}
	}
	return region.Markets
}

// machines returns an offer without place and price for each type of a region.
func (p *Provider) machines(ctx context.Context, client *ec2.Client, region *settings.Region) (map[string]burst.Offer, error) {
	all := map[string]burst.Offer{}
	in := &ec2.DescribeInstanceTypesInput{}
	for _, name := range region.Types {
		in.InstanceTypes = append(in.InstanceTypes, types.InstanceType(name))
	}
	pages := ec2.NewDescribeInstanceTypesPaginator(client, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for i := range page.InstanceTypes {
			o := p.machine(&page.InstanceTypes[i])
			all[o.Type] = o
		}
	}
	return all, nil
}

func (p *Provider) machine(info *types.InstanceTypeInfo) burst.Offer {
	known := p.cfg.FindType(string(info.InstanceType))
	o := burst.Offer{Type: known.Name, BootSeconds: int64(known.BootTime / time.Second), InterruptionPPM: int32(known.InterruptionPPM)}
	if info.VCpuInfo != nil {
		o.CPUs = aws.ToInt32(info.VCpuInfo.DefaultVCpus)
	}
	if info.MemoryInfo != nil {
		o.MemoryBytes = aws.ToInt64(info.MemoryInfo.SizeInMiB) << 20 * int64(p.cfg.MemoryPercent) / 100
	}
	if info.GpuInfo == nil || len(info.GpuInfo.Gpus) == 0 {
		return o
	}
	device := info.GpuInfo.Gpus[0] // no type has two kinds
	o.GPUs, o.GPUType = aws.ToInt32(device.Count), known.GPUType
	if o.GPUType == "" {
		o.GPUType = gpuType(aws.ToString(device.Name))
	}
	if device.MemoryInfo != nil {
		o.GPUMemoryBytes = int64(aws.ToInt32(device.MemoryInfo.SizeInMiB)) << 20
	}
	return o
}

// gpuType returns the name that gnoded gives to a GPU which EC2 calls "A10G", "L40S" or "H100".
func gpuType(name string) string {
	if name == "RTX PRO Server 6000" {
		return "rtxpro6000"
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
}

// places returns the types of a region that its zones have, by name.
func (p *Provider) places(ctx context.Context, client *ec2.Client, region *settings.Region) ([]offer, error) {
	var all []offer
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(client, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: types.LocationTypeAvailabilityZone,
		Filters:      []types.Filter{{Name: aws.String("instance-type"), Values: region.Types}},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, o := range page.InstanceTypeOfferings {
			if place := (offer{string(o.InstanceType), aws.ToString(o.Location)}); region.Subnet(place.zone) != "" {
				all = append(all, place)
			}
		}
	}
	slices.SortFunc(all, func(a, b offer) int { return strings.Compare(a.kind+"/"+a.zone, b.kind+"/"+b.zone) })
	return slices.Compact(all), nil
}

// spotPrices returns the spot prices that hold now. The history has a time for each price, from which on it holds until
// the next one: a price that has not changed for days is not old.
func (p *Provider) spotPrices(ctx context.Context, client *ec2.Client, region *settings.Region, now time.Time) (map[offer]string, error) {
	in := &ec2.DescribeSpotPriceHistoryInput{StartTime: aws.Time(now), ProductDescriptions: []string{p.cfg.Product}}
	for _, name := range region.Types {
		in.InstanceTypes = append(in.InstanceTypes, types.InstanceType(name))
	}
	prices, since := map[offer]string{}, map[offer]time.Time{}
	pages := ec2.NewDescribeSpotPriceHistoryPaginator(client, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, h := range page.SpotPriceHistory {
			at, place := aws.ToTime(h.Timestamp), offer{string(h.InstanceType), aws.ToString(h.AvailabilityZone)}
			if last, seen := since[place]; !seen || at.After(last) {
				prices[place], since[place] = aws.ToString(h.SpotPrice), at
			}
		}
	}
	return prices, nil
}
