// Package provider rents nodes from EC2: the calls of the contract in internal/burst over the AWS SDK.
//
// An offer is an instance type in an availability zone, and a launch is one call of RunInstances with equal least and
// greatest numbers: EC2 itself starts all instances or none, in one zone and of one type, and recognizes a repeated
// call by its client token. CreateFleet is not used: it takes user data only from a version of a launch template, which
// would have to be made and removed for each launch, and it may start a part of what was asked for.
//
// The package keeps no state. A call of one region fails as a whole, since an instance that is missing in a list counts
// as ended.
package provider

import (
	"context"
	"fmt"
	"io"
	"log"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/greylag/greylag/burst/aws/internal/settings"
	"github.com/greylag/greylag/internal/burst"
)

// maxAttempts bounds the attempts of one call to EC2. The deadline of the program bounds their time.
const maxAttempts = 4

// Provider carries out calls.
type Provider struct {
	cfg     *settings.Settings
	cluster string
	now     func() time.Time
	log     *log.Logger // of standard error, which the controller logs
	clients map[string]*ec2.Client
	retryer func() aws.Retryer
}

// New returns a provider for a cluster. Messages for the log of the controller are written to messages.
func New(cfg *settings.Settings, cluster string, messages io.Writer) *Provider {
	return &Provider{
		cfg: cfg, cluster: cluster, now: time.Now, log: log.New(messages, "", 0), clients: map[string]*ec2.Client{},
		retryer: func() aws.Retryer { return newRetryer(func(*retry.StandardOptions) {}) },
	}
}

// newRetryer repeats what the SDK repeats, except that the answer to an error of capacity is another offer.
func newRetryer(change func(*retry.StandardOptions)) aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = maxAttempts
		o.Retryables = slices.Concat([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			if kinds[codeOf(err)] == burst.FailureCapacity {
				return aws.FalseTernary
			}
			return aws.UnknownTernary
		})}, o.Retryables)
		change(o)
	})
}

// client returns the client of a region. An error is one of the credentials.
func (p *Provider) client(ctx context.Context, region *settings.Region) (*ec2.Client, error) {
	if c, ok := p.clients[region.Name]; ok {
		return c, nil
	}
	options := []func(*config.LoadOptions) error{config.WithRegion(region.Name), config.WithRetryer(p.retryer)}
	if p.cfg.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(p.cfg.Profile))
	}
	if p.cfg.CredentialsFile != "" {
		options = append(options, config.WithSharedCredentialsFiles([]string{p.cfg.CredentialsFile}))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, failure(burst.FailureDenied, "AWS configuration: %w", err)
	}
	if _, err := loaded.Credentials.Retrieve(ctx); err != nil {
		failed := failure(burst.FailureDenied, "no AWS credentials: %w", err)
		if kind := kindOf(err); kind != burst.FailureInvalid {
			failed.Kind = kind
		}
		return nil, failed
	}
	c := ec2.NewFromConfig(loaded, func(o *ec2.Options) {
		o.APIOptions = append(o.APIOptions, requireAnswers)
		if region.Endpoint != "" {
			o.BaseEndpoint = aws.String(region.Endpoint)
		}
	})
	p.clients[region.Name] = c
	return c, nil
}

// eachRegion calls f for every region, in the order of the file, and returns the first error: a region that fails does
// not keep instances of the others from ending.
func (p *Provider) eachRegion(ctx context.Context, f func(*settings.Region, *ec2.Client) error) error {
	var first error
	for i := range p.cfg.Regions {
		region := &p.cfg.Regions[i]
		client, err := p.client(ctx, region)
		if err == nil {
			err = f(region, client)
		}
		if err != nil && first == nil {
			failed := *classify(err)
			failed.Err = fmt.Errorf("region %s: %w", region.Name, failed.Err)
			first = &failed
		}
	}
	return first
}
