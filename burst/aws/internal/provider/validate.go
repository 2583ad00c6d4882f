package provider

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/greylag/greylag/burst/aws/internal/settings"
	"github.com/greylag/greylag/internal/burst"
)

// validate returns what prevents the program from working. It launches nothing: EC2 checks calls with DryRun.
func (p *Provider) validate(ctx context.Context) ([]string, error) {
	problems := []string{}
	for i := range p.cfg.Regions {
		region := &p.cfg.Regions[i]
		client, err := p.client(ctx, region)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", region.Name, err))
			continue
		}
		for _, check := range []func(context.Context, *ec2.Client, *settings.Region) []string{
			p.checkReading, p.checkSubnets, p.checkTemplate, p.checkOffers, p.checkLaunch,
		} {
			for _, problem := range check(ctx, client, region) {
				problems = append(problems, region.Name+": "+problem)
			}
		}
	}
	if ctx.Err() != nil {
		return nil, &Error{Kind: burst.FailureTryLater, Err: ctx.Err()}
	}
	return problems, nil
}

// checkReading tries the calls that list instances.
func (p *Provider) checkReading(ctx context.Context, client *ec2.Client, _ *settings.Region) []string {
	var problems []string
	if _, err := p.describe(ctx, client, map[string][]string{"tag:" + tagCluster: {p.cluster}}); err != nil {
		problems = append(problems, "instances cannot be listed: "+err.Error())
	}
	if _, err := p.spotRequests(ctx, client); err != nil {
		problems = append(problems, "spot requests cannot be listed: "+err.Error())
	}
	return problems
}

func (p *Provider) checkSubnets(ctx context.Context, client *ec2.Client, region *settings.Region) []string {
	var problems []string
	for _, zone := range region.Zones {
		answer, err := client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{zone.Subnet}})
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("subnet %s: %v", zone.Subnet, err))
		case len(answer.Subnets) != 1 || aws.ToString(answer.Subnets[0].AvailabilityZone) != zone.Name:
			problems = append(problems, fmt.Sprintf("subnet %s is not in the zone %s", zone.Subnet, zone.Name))
		}
	}
	return problems
}

func (p *Provider) checkTemplate(ctx context.Context, client *ec2.Client, region *settings.Region) []string {
	if region.Template == "" {
		return nil
	}
	named := p.template(region, "", "", settings.OnDemand).LaunchTemplate
	in := &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: named.LaunchTemplateId, LaunchTemplateName: named.LaunchTemplateName}
	in.Versions = []string{aws.ToString(named.Version)}
	if in.Versions[0] == "" {
		in.Versions[0] = "$Default"
	}
	answer, err := client.DescribeLaunchTemplateVersions(ctx, in)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("launch template %s: %v", region.Template, err)}
	case len(answer.LaunchTemplateVersions) != 1 || answer.LaunchTemplateVersions[0].LaunchTemplateData == nil:
		return []string{fmt.Sprintf("launch template %s: there is no version %s", region.Template, in.Versions[0])}
	}
	data := answer.LaunchTemplateVersions[0].LaunchTemplateData
	var problems []string
	if len(data.NetworkInterfaces) > 0 {
		problems = append(problems, fmt.Sprintf("launch template %s: it describes network interfaces, so that no subnet can be chosen: remove them", region.Template))
	}
	if aws.ToString(data.ImageId) == "" && region.Image == "" {
		problems = append(problems, fmt.Sprintf("launch template %s: it has no image: set image of the region", region.Template))
	}
	return problems
}

// checkOffers requires an offer of each type and market.
func (p *Provider) checkOffers(ctx context.Context, _ *ec2.Client, region *settings.Region) []string {
	if len(region.Types) == 0 {
		return nil
	}
	list, err := p.regionOffers(ctx, region)
	if err != nil {
		return []string{"offers: " + err.Error()}
	}
	var problems []string
	for _, kind := range region.Types {
		for _, market := range markets(region) {
			if slices.ContainsFunc(list, func(o burst.Offer) bool { return o.Type == kind && o.Market == market }) {
				continue
			}
			problem := fmt.Sprintf("%s has no %s price in the zones of the configuration", kind, market)
			if market == settings.OnDemand && p.cfg.Price(region.Name, kind, p.now()) == "" {
				problem = fmt.Sprintf("no price of %s on demand is known: add an [[on_demand.price]]", kind)
			}
			problems = append(problems, problem)
		}
	}
	return problems
}

// checkLaunch asks EC2 whether a launch in each zone would be permitted.
func (p *Provider) checkLaunch(ctx context.Context, client *ec2.Client, region *settings.Region) []string {
	var problems []string
	for _, zone := range region.Zones {
		if len(region.Types) == 0 {
			break
		}
		in := p.template(region, zone.Name, region.Types[0], markets(region)[0])
		in.DryRun = aws.Bool(true)
		p.tag(in, map[string]string{tagCluster: p.cluster, tagLaunch: "1", tagTry: "1", tagLifetime: "1"})
		_, err := client.RunInstances(ctx, in)
		code := codeOf(err)
		if code == "DryRunOperation" || kinds[code] == burst.FailureCapacity {
			continue
		}
		problems = append(problems, fmt.Sprintf("a launch in %s would fail: %v", zone.Name, err))
	}
	return problems
}
