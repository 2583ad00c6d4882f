// Package client is the typed client of the API, for the commands and for the daemons.
//
// It decides which controller a call goes to, and whether and when it repeats a call, from the
// outcomes of the attempts before. It repeats a call only with the same bytes: mutations carry a
// request ID, so that the cluster applies them once however often they arrive. It does not send a
// message that cannot be encoded. It never changes a request, never looks into an answer beyond its
// status, and never identifies the caller: a token source or a certificate does.
package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
)

// Headers of answers.
const (
	// HintHeader handles the hint of an error, in one line.
	HintHeader = auth.HintHeader
	// LeaderHeader names the leading controller, HOST:PORT.
	LeaderHeader = "Greylag-Leader"
)

// defaultTimeout is how long a call is tried, over all its attempts: several times an election.
const defaultTimeout = 30 * time.Second

// TokenSource proves the caller's identity. It is asked once for each attempt.
type TokenSource interface {
	Token(ctx context.Context) (string, error)
}

// Config configures a client. TLS and one of Controllers and Known are required.
type Config struct {
	Controllers []string    // HOST:PORT each
	Known       *Known      // instead of Controllers: those that a daemon learns
	TLS         *tls.Config // from package pki
	Tokens      TokenSource // nil for a program that proves its identity by certificate
	// Timeout bounds a unary call, and the opening of a stream, over all its attempts except the
	// last one's length. 0 means 30 s. A context that ends earlier counts. A read-only call ends
	// after about 5 s if there is no leader.
	Timeout time.Duration
	// Retry is called with the reason of a failed attempt that another one follows, the time spent
	// on the call, and the time left. It may be nil, and runs in the goroutine of the call.
	Retry func(err error, tried, left time.Duration)
}

// Client talks to the controllers of one cluster. It keeps its connections to the current
// controller: one for each call under way and one for all streams. Safe for concurrent use.
type Client struct {
	calls *failover
	// Created on first use: a command uses one, and creating one reads the description of its whole
	// protocol.
	jobs  func() greylagv1connect.JobServiceClient
	admin func() greylagv1connect.ClusterServiceClient
	node  func() greylagv1connect.NodeServiceClient
	share func() greylagv1connect.AccountServiceClient
	tells func() greylagv1connect.ReportServiceClient
	past  func() greylagv1connect.HistoryServiceClient
	money func() greylagv1connect.CreditServiceClient
}

// New returns a client. It does not connect until the first call.
func New(cfg Config) *Client {
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	calls := newFailover(cfg)
	// The host is replaced for each attempt. Compression would cost more time
	// than the network does.
	const base = "https://controller"
	plain := connect.WithClientOptions(connect.WithAcceptCompression("gzip", nil, nil), connect.WithCodec(codec{}), connect.WithInterceptors(wellFormed{}))
	return &Client{
		calls: calls,
		jobs: sync.OnceValue(func() greylagv1connect.JobServiceClient {
			return greylagv1connect.NewJobServiceClient(calls, base, plain)
		}),
		admin: sync.OnceValue(func() greylagv1connect.ClusterServiceClient {
			return greylagv1connect.NewClusterServiceClient(calls, base, plain)
		}),
		node: sync.OnceValue(func() greylagv1connect.NodeServiceClient {
			return greylagv1connect.NewNodeServiceClient(calls, base, plain)
		}),
		share: sync.OnceValue(func() greylagv1connect.AccountServiceClient {
			return greylagv1connect.NewAccountServiceClient(calls, base, plain)
		}),
		tells: sync.OnceValue(func() greylagv1connect.ReportServiceClient {
			return greylagv1connect.NewReportServiceClient(calls, base, plain)
		}),
		past: sync.OnceValue(func() greylagv1connect.HistoryServiceClient {
			return greylagv1connect.NewHistoryServiceClient(calls, base, plain)
		}),
		money: sync.OnceValue(func() greylagv1connect.CreditServiceClient {
			return greylagv1connect.NewCreditServiceClient(calls, base, plain)
		}),
	}
}

// Dial returns a client for a user's program, identified by gauthd. It does not connect until the
// first call.
func Dial(cfg config.Client) (*Client, error) {
	if cfg.JobSocket != "" {
		return dialNode(cfg)
	}
	trusted, err := trust(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	return New(Config{
		Controllers: cfg.Controllers,
		TLS:         trusted,
		Tokens:      auth.NewSource(cfg.AuthSocket),
		Timeout:     cfg.Timeout,
	}), nil
}

// DialOnce is Dial for a command that makes a call or two: its calls go through gauthd, which has
// open connections to the controllers, or directly if that fails.
func DialOnce(cfg config.Client) (*Client, error) {
	if _, err := os.Stat(cfg.AuthSocket); err != nil || cfg.Direct || cfg.JobSocket != "" {
		return Dial(cfg) // which has the message for a missing socket
	}
	c := New(Config{Controllers: cfg.Controllers, Tokens: auth.NewSource(cfg.AuthSocket), Timeout: cfg.Timeout})
	c.calls.relay = newRelay(cfg.AuthSocket)
	c.calls.trust = func() (*tls.Config, error) { return trust(cfg.CAFile) }
	return c, nil
}

// trust returns how the controllers prove their identity to the programs of users.
func trust(caFile string) (*tls.Config, error) {
	trusted, err := pki.LoadTrust(caFile)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, hint.New(fmt.Errorf("this host has not joined a cluster: %s does not exist", caFile),
				"an administrator runs: gctl join TOKEN@CONTROLLER, or gctl init on a controller; or set "+config.ClientEnv+" to a client.toml")
		}
		return nil, hint.New(badTrust(caFile, err), "copy ca_file from another host of the cluster, or an administrator runs: gctl join TOKEN@CONTROLLER")
	}
	return pki.ClientTLS(trusted, nil), nil
}

// badTrust describes an error in the file of the CA certificates.
func badTrust(caFile string, err error) error {
	if at, is := errors.AsType[*fs.PathError](err); is {
		return fmt.Errorf("cannot read the cluster's CA certificate, %s: %w", caFile, at.Err)
	}
	_, why, _ := strings.Cut(err.Error(), pki.ErrUntrusted.Error()+": ")
	return fmt.Errorf("%s is not a cluster CA certificate: %s", caFile, cmp.Or(why, err.Error()))
}

// OnRetry sets Config.Retry. It must be called before the first call.
func (c *Client) OnRetry(f func(err error, tried, left time.Duration)) { c.calls.cfg.Retry = f }

// Jobs calls JobService.
func (c *Client) Jobs() greylagv1connect.JobServiceClient { return c.jobs() }

// Cluster calls ClusterService.
func (c *Client) Cluster() greylagv1connect.ClusterServiceClient { return c.admin() }

// Credits calls CreditService.
func (c *Client) Credits() greylagv1connect.CreditServiceClient { return c.money() }

// Accounts calls AccountService.
func (c *Client) Accounts() greylagv1connect.AccountServiceClient { return c.share() }

// History returns the service for past and present jobs.
func (c *Client) History() greylagv1connect.HistoryServiceClient { return c.past() }

// Reports calls ReportService.
func (c *Client) Reports() greylagv1connect.ReportServiceClient { return c.tells() }

// Node calls NodeService, which only the leader answers. The session of a node finds the leader by
// itself.
func (c *Client) Node() *NodeSession { return &NodeSession{c.node()} }

// Close closes idle connections. Calls under way continue.
func (c *Client) Close() { c.calls.close() }

// NewRequestID returns the ID of one mutation: 128 random bits in hexadecimal.
func NewRequestID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails on Linux
	return hex.EncodeToString(id[:])
}

// Hint returns the hint of an error, from its answer or from this program; "" for none.
func Hint(err error) string {
	if advice := hint.Of(err); advice != "" {
		return advice
	}
	var remote *connect.Error
	if errors.As(err, &remote) {
		return remote.Meta().Get(HintHeader)
	}
	return ""
}
