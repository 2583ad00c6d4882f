package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
)

// api is one controller's API, called directly: no retries, no other controller.
type api struct {
	cluster greylagv1connect.ClusterServiceClient
	jobs    greylagv1connect.JobServiceClient
	credits greylagv1connect.CreditServiceClient
}

// tokenTransport adds this process's identity to requests.
type tokenTransport struct {
	source *auth.Source
	next   http.RoundTripper
}

func (b tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := b.source.Token(req.Context())
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+token)
	return b.next.RoundTrip(req)
}

func newAPI(addr string, trust *pki.Trust, socket string) api {
	client := &http.Client{Transport: tokenTransport{auth.NewSource(socket), &http.Transport{
		TLSClientConfig:     pki.ClientTLS(trust, nil),
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 30 * time.Second,
		MaxConnsPerHost:     64,
	}}}
	return api{
		greylagv1connect.NewClusterServiceClient(client, "https://"+addr),
		greylagv1connect.NewJobServiceClient(client, "https://"+addr),
		greylagv1connect.NewCreditServiceClient(client, "https://"+addr),
	}
}

// Client returns a client like that of the commands: it follows the leader and repeats unanswered
// requests. The caller closes it.
func (c *Cluster) Client() (*client.Client, error) {
	cfg, err := config.LoadClient(c.ConfigFile())
	if err != nil {
		return nil, err
	}
	return client.Dial(cfg)
}

// ReloadTrust makes this process accept the CAs in the commands' ca.pem, as the daemons wrote it.
func (c *Cluster) ReloadTrust() error {
	now, err := pki.LoadTrust(c.caFile())
	if err == nil {
		_, err = c.trust.Replace(now.DERs())
	}
	return err
}

// PKI returns the folder of a node's certificate and of the CAs that it accepts.
func (n *Node) PKI() string { return filepath.Join(n.dir, "pki") }

// Textfile returns the file with a node's metrics.
func (n *Node) Textfile() string { return filepath.Join(n.dir, "greylag.prom") }

// CAFile returns the file with the CAs of the controllers' certificates.
func (c *Cluster) CAFile() string { return c.caFile() }

// Jobs returns this controller's job service, called directly: no retries.
func (ctl *Controller) Jobs() greylagv1connect.JobServiceClient { return ctl.api.jobs }

// Credits returns this controller's credit service, called directly: no retries.
func (ctl *Controller) Credits() greylagv1connect.CreditServiceClient { return ctl.api.credits }

// Cluster returns this controller's cluster service, called directly: no retries.
func (ctl *Controller) Cluster() greylagv1connect.ClusterServiceClient { return ctl.api.cluster }

// Status returns a controller's status. It asks until the controller answers, has ended, or did not
// answer for a minute.
func (ctl *Controller) Status(ctx context.Context) (answer *greylagv1.GetStatusResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	waited := Until(ctx, ctl.Name+" answers", func() (bool, error) {
		answer, err = ctl.status(ctx)
		return err == nil || !ctl.Running(), err
	})
	return answer, cmp.Or(waited, err)
}

// status asks once, for two seconds.
func (ctl *Controller) status(ctx context.Context) (*greylagv1.GetStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return ctl.api.cluster.GetStatus(ctx, &greylagv1.GetStatusRequest{})
}

// Leader waits, at most two minutes, until one of the controllers leads, and returns it. If two
// claim to lead, the one with the later term counts.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	return c.LeaderAmong(ctx, c.controllers...)
}

// LeaderAmong is Leader for some of the controllers.
func (c *Cluster) LeaderAmong(ctx context.Context, among ...*Controller) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	leader := -1
	err := Until(ctx, "a controller leads", func() (bool, error) {
		var term uint64
		var problems error
		for i, ctl := range c.controllers {
			if !contains(among, ctl) || !ctl.Running() || ctl.Paused() {
				continue
			}
			status, err := ctl.status(ctx)
			if err != nil {
				problems = errors.Join(problems, fmt.Errorf("%s: %w", ctl.Name, err))
				continue
			}
			if status.Leader == status.Id && status.Id != "" && status.Term > term {
				leader, term = i, status.Term
			}
		}
		return term > 0, problems
	})
	return leader, err
}

func contains(list []*Controller, ctl *Controller) bool {
	for _, other := range list {
		if other == ctl {
			return true
		}
	}
	return false
}

// any asks controllers until one answers.
func (c *Cluster) any(ask func(*Controller) error) error {
	var failed error
	for _, ctl := range c.controllers {
		if !ctl.Running() || ctl.Paused() {
			continue
		}
		err := ask(ctl)
		if err == nil {
			return nil
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", ctl.Name, err))
	}
	if failed == nil {
		failed = errors.New("no controller runs")
	}
	return failed
}

// NodeInfo returns the cluster's record of a node.
func (c *Cluster) NodeInfo(ctx context.Context, name string) (*greylagv1.Node, error) {
	var found *greylagv1.Node
	err := c.any(func(ctl *Controller) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		answer, err := ctl.api.cluster.ListNodes(ctx, &greylagv1.ListNodesRequest{Names: []string{name}})
		if err == nil && len(answer.Nodes) == 1 {
			found = answer.Nodes[0]
		}
		return err
	})
	if err == nil && found == nil {
		err = fmt.Errorf("no node %s", name)
	}
	return found, err
}
