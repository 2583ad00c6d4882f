package burst

import (
	"context"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Provider rents nodes from a cloud. Its errors wrap [ErrRefused] or [ErrUnknownOutcome], except that of a ctx that has
// ended.
type Provider interface {
	// Offers returns the present prices.
	Offers(ctx context.Context) (Prices, error)
	// Launch starts instances, all or none. A repeated launch with the same ClientToken returns the same instances. With
	// an error that wraps [ErrUnknownOutcome] it may return instances of the launch that it saw.
	Launch(ctx context.Context, l *LaunchRequest) ([]cluster.Instance, error)
	// List returns the instances with the tag of the cluster, by ID. Terminated ones may be left out after an hour.
	List(ctx context.Context) ([]cluster.Instance, error)
	// Terminate ends instances; those that have ended, or are unknown, are no error. It returns what the cloud says of
	// them: [Provider.List] says when one has ended.
	Terminate(ctx context.Context, ids []string) ([]cluster.Instance, error)
	// Console returns the end of the console output of an instance, at most cluster.MaxConsole bytes.
	Console(ctx context.Context, id string) (string, error)
	// Validate returns what prevents the provider from working, such as missing permissions.
	Validate(ctx context.Context) (problems []string, err error)
}

// Prices are the offers of a cloud, by name and market.
type Prices struct {
	Currency string
	Offers   []cluster.Offer
}

// LaunchRequest asks for instances.
type LaunchRequest struct {
	Launch      cluster.LeaseID
	Try         uint32
	ClientToken string // see cluster.Lease.ClientToken
	Nodes       int
	Offer       cluster.Offer
	MaxPrice    int64 // of an hour of one instance, in millionths of the currency
	Lifetime    time.Duration
	Controllers []string // HOST:PORT
	JoinToken   string   // never logged
}
