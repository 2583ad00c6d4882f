package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/greylag/greylag/burst/aws/internal/settings"
	"github.com/greylag/greylag/internal/burst"
)

// The tags of an instance. No tag has the time of its end: a repeated request must be equal to the first one.
const (
	tagCluster  = "greylag:cluster"
	tagLaunch   = "greylag:launch"
	tagTry      = "greylag:try"
	tagLifetime = "greylag:lifetime" // in seconds, from the start of the instance
)

// maxNodes bounds the instances of a launch.
const maxNodes = 10_000

// minSpotPrice is the lowest maximum price that EC2 takes: a lower one is an invalid parameter.
var minSpotPrice = big.NewRat(1, 1000)

// launch starts the instances of a question, all or none.
func (p *Provider) launch(ctx context.Context, q *burst.LaunchQuestion) ([]burst.Instance, error) {
	region := p.cfg.FindRegion(q.Region)
	if region == nil {
		return nil, failure(burst.FailureNotFound, "the region %q is not in the configuration", q.Region)
	}
	client, err := p.client(ctx, region)
	if err != nil {
		return nil, err
	}
	request, err := p.request(region, q)
	if err != nil { // the configuration may have changed since an earlier request, which started the instances
		return p.existing(ctx, client, q, classify(err))
	}
	answer, err := client.RunInstances(ctx, request)
	if err != nil {
		return p.refused(ctx, client, q, classify(err))
	}
	return p.complete(ctx, client, q, answer.Instances)
}

// offered returns the zone of a question.
func (p *Provider) offered(region *settings.Region, q *burst.LaunchQuestion) (string, error) {
	kind, zone, _ := strings.Cut(q.Offer, "/")
	switch {
	case kind != q.Type || region.Subnet(zone) == "" || !slices.Contains(region.Types, q.Type):
		return "", failure(burst.FailureNotFound, "the offer %q with the type %q is not in the configuration of %s", q.Offer, q.Type, q.Region)
	case !slices.Contains(markets(region), q.Market):
		return "", failure(burst.FailureNotFound, "the market %q is not in the configuration of %s", q.Market, q.Region)
	case q.Nodes < 1 || q.Nodes > maxNodes || q.ClientToken == "" || len(q.ClientToken) > 64 || q.Launch == 0 || q.Try == 0 || q.LifetimeSeconds < 1:
		return "", failure(burst.FailureInvalid, "nodes, client_token, launch, try or lifetime_seconds is missing or out of range")
	}
	return zone, p.checkPrice(q)
}

// checkPrice refuses what EC2 does not compare with the limit: nodes on demand, and spot nodes with a limit near 0.
func (p *Provider) checkPrice(q *burst.LaunchQuestion) error {
	limit, ok := new(big.Rat).SetString(q.MaxPrice)
	if !ok || limit.Sign() <= 0 {
		return failure(burst.FailureInvalid, "max_price %q is not a positive decimal number", q.MaxPrice)
	}
	if q.Market != settings.OnDemand {
		if limit.Cmp(minSpotPrice) < 0 {
			return failure(burst.FailurePrice, "max_price %s is below the lowest spot price that EC2 takes, %s", q.MaxPrice, minSpotPrice.FloatString(3))
		}
		return nil
	}
	text := p.cfg.Price(q.Region, q.Type, p.now())
	price, ok := new(big.Rat).SetString(text)
	if !ok {
		return failure(burst.FailureNotFound, "no price of %s on demand in %s is known", q.Type, q.Region)
	}
	if price.Cmp(limit) > 0 {
		return failure(burst.FailurePrice, "the price of %s on demand, %s, is above the limit, %s", q.Type, text, q.MaxPrice)
	}
	return nil
}

// request returns the call of a question. Equal questions have equal calls.
func (p *Provider) request(region *settings.Region, q *burst.LaunchQuestion) (*ec2.RunInstancesInput, error) {
	zone, err := p.offered(region, q)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(q.UserData)
	if err != nil {
		return nil, failure(burst.FailureInvalid, "user data: %w", err)
	}
	in := p.template(region, zone, q.Type, q.Market)
	in.MinCount, in.MaxCount = aws.Int32(int32(q.Nodes)), aws.Int32(int32(q.Nodes))
	in.ClientToken = aws.String(q.ClientToken)
	in.UserData = aws.String(base64.StdEncoding.EncodeToString(data))
	if in.InstanceMarketOptions != nil {
		in.InstanceMarketOptions.SpotOptions.MaxPrice = aws.String(q.MaxPrice)
	}
	p.tag(in, map[string]string{
		tagCluster: p.cluster, tagLaunch: strconv.FormatUint(q.Launch, 10), tagTry: strconv.FormatUint(uint64(q.Try), 10),
		tagLifetime: strconv.FormatInt(q.LifetimeSeconds, 10),
	})
	return in, nil
}

// template returns the part of a launch that is equal for all questions of an offer.
func (p *Provider) template(region *settings.Region, zone, kind, market string) *ec2.RunInstancesInput {
	in := &ec2.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		InstanceType: types.InstanceType(kind), SubnetId: aws.String(region.Subnet(zone)),
		InstanceInitiatedShutdownBehavior: types.ShutdownBehaviorTerminate, DisableApiTermination: aws.Bool(false),
		// Containers of jobs that have a network of their own do not reach the metadata service.
		MetadataOptions: &types.InstanceMetadataOptionsRequest{
			HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: aws.Int32(1), HttpEndpoint: types.InstanceMetadataEndpointStateEnabled,
		},
	}
	if region.Template != "" {
		in.LaunchTemplate = &types.LaunchTemplateSpecification{}
		if strings.HasPrefix(region.Template, "lt-") {
			in.LaunchTemplate.LaunchTemplateId = aws.String(region.Template)
		} else {
			in.LaunchTemplate.LaunchTemplateName = aws.String(region.Template)
		}
		if region.TemplateVersion != "" {
			in.LaunchTemplate.Version = aws.String(region.TemplateVersion)
		}
	}
	if region.Image != "" {
		in.ImageId = aws.String(region.Image)
	}
	if len(region.SecurityGroups) > 0 {
		in.SecurityGroupIds = region.SecurityGroups
	}
	if region.InstanceProfile != "" {
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: aws.String(region.InstanceProfile)}
	}
	if market == settings.Spot {
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{
			MarketType: types.MarketTypeSpot,
			SpotOptions: &types.SpotMarketOptions{
				SpotInstanceType: types.SpotInstanceTypeOneTime, InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate,
			},
		}
	}
	return in
}

// tag sets the tags of all resources that a launch makes.
func (p *Provider) tag(in *ec2.RunInstancesInput, tags map[string]string) {
	var list []types.Tag
	for _, key := range []string{tagCluster, tagLaunch, tagTry, tagLifetime} {
		if value, ok := tags[key]; ok {
			list = append(list, types.Tag{Key: aws.String(key), Value: aws.String(value)})
		}
	}
	kinds := []types.ResourceType{types.ResourceTypeInstance, types.ResourceTypeVolume}
	if in.InstanceMarketOptions != nil {
		kinds = append(kinds, types.ResourceTypeSpotInstancesRequest)
	}
	for _, kind := range kinds {
		in.TagSpecifications = append(in.TagSpecifications, types.TagSpecification{ResourceType: kind, Tags: list})
	}
}

// complete returns the instances of a launch if they are all there. Else it ends those that are.
func (p *Provider) complete(ctx context.Context, client *ec2.Client, q *burst.LaunchQuestion, list []types.Instance) ([]burst.Instance, error) {
	if len(list) == q.Nodes {
		return p.instances(list), nil
	}
	var ids []string
	for _, i := range list {
		if i.State == nil || i.State.Name != types.InstanceStateNameTerminated {
			ids = append(ids, aws.ToString(i.InstanceId))
		}
	}
	failed := failure(burst.FailureCapacity, "EC2 launched %d of %d instances; they are terminated", len(list), q.Nodes)
	if len(ids) == 0 {
		return nil, failed
	}
	failed.Unknown = true // until they have ended
	if _, err := client.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids}); err != nil {
		return nil, failure(burst.FailureTryLater, "EC2 launched %d of %d instances, and they cannot be terminated: %w", len(list), q.Nodes, err)
	}
	return nil, failed
}

// refused handles a launch with an error. EC2 compares the client token before it looks for capacity, but after it has
// checked permissions and arguments: only a list by the token shows then whether an earlier call had success.
func (p *Provider) refused(ctx context.Context, client *ec2.Client, q *burst.LaunchQuestion, failed *Error) ([]burst.Instance, error) {
	ended := codeOf(failed) == "IdempotentInstanceTerminated"
	if ended {
		failed.Kind = burst.FailureCapacity
	}
	switch failed.Kind {
	case burst.FailureThrottled, burst.FailureTryLater, burst.FailureMismatch:
		return nil, failed
	case burst.FailureCapacity, burst.FailurePrice, burst.FailureQuota:
		if !ended {
			return nil, failed
		}
	}
	return p.existing(ctx, client, q, failed)
}

// existing returns the instances of the client token of a launch that failed, or the failure.
func (p *Provider) existing(ctx context.Context, client *ec2.Client, q *burst.LaunchQuestion, failed *Error) ([]burst.Instance, error) {
	list, err := p.describe(ctx, client, map[string][]string{"client-token": {q.ClientToken}, "tag:" + tagCluster: {p.cluster}})
	if err != nil {
		failed.Unknown = true
		return nil, failed
	}
	if len(list) == 0 {
		return nil, failed
	}
	return p.complete(ctx, client, q, list)
}
