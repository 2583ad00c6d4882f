package client

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/pkg/cluster"
)

// Peers is a controller's way to the others, by address. Nothing is tried twice:
// the caller knows better whom to ask next. Safe for concurrent use.
type Peers struct {
	http *http.Client
	mu   sync.Mutex
	byAt map[string]greylagv1connect.PeerServiceClient
}

// maxPeers is how many addresses are remembered; a cluster has five controllers.
const maxPeers = 64

// NewPeers makes it. TLS must hold the controller's own certificate.
func NewPeers(tls *tls.Config) *Peers {
	return &Peers{http: &http.Client{Transport: newTransports(tls)}, byAt: make(map[string]greylagv1connect.PeerServiceClient)}
}

// Transport handles requests to other controllers, over the same connections.
func (p *Peers) Transport() http.RoundTripper { return p.http.Transport }

// Close closes idle connections.
func (p *Peers) Close() { p.http.CloseIdleConnections() }

func (p *Peers) at(addr string) greylagv1connect.PeerServiceClient {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.byAt[addr]
	if !ok {
		if len(p.byAt) >= maxPeers {
			clear(p.byAt)
		}
		c = greylagv1connect.NewPeerServiceClient(p.http, "https://"+addr, connect.WithAcceptCompression("gzip", nil, nil))
		p.byAt[addr] = c
	}
	return c
}

// peerTimeout bounds one question to a peer.
const peerTimeout = 10 * time.Second

// ReadIndex asks the controller at addr to confirm that it leads, and returns the
// log index that a linearizable read elsewhere must wait for.
func (p *Peers) ReadIndex(ctx context.Context, addr string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	answer, err := p.at(addr).GetReadIndex(ctx, &greylagv1.GetReadIndexRequest{})
	return answer.GetIndex(), err
}

// Authority returns the CAs (DER) of the controller at addr and the private keys (PEM) that it has.
func (p *Peers) Authority(ctx context.Context, addr string) (ca [][]byte, keys []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	answer, err := p.at(addr).GetAuthority(ctx, &greylagv1.GetAuthorityRequest{})
	return answer.GetCa(), answer.GetCaKey(), err
}

// Finished returns up to limit archived jobs of the controller at addr, beginning
// with sequence number from, and the first sequence number that is not among them.
func (p *Peers) Finished(ctx context.Context, addr string, from uint64, limit int) ([][]byte, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	answer, err := p.at(addr).ListFinishedJobs(ctx, &greylagv1.ListFinishedJobsRequest{From: from, Limit: int32(limit)})
	return answer.GetRecords(), answer.GetNext(), err
}

// Rows returns up to limit entries of a journal of the controller at addr, beginning
// with number from and without a gap.
func (p *Peers) Rows(ctx context.Context, addr string, journal uint32, from uint64, limit int) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	answer, err := p.at(addr).ListJournalRows(ctx, &greylagv1.ListJournalRowsRequest{Journal: journal, From: from, Limit: int32(limit)})
	return answer.GetRows(), err
}

// Blobs returns scripts and environments by digest, in the order asked, nil where
// the controller at addr has none.
func (p *Peers) Blobs(ctx context.Context, addr string, digests []cluster.Digest) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	request := &greylagv1.GetBlobsRequest{}
	for _, d := range digests {
		request.Digests = append(request.Digests, d[:])
	}
	answer, err := p.at(addr).GetBlobs(ctx, request)
	contents := answer.GetContents()
	for i := range contents {
		if len(contents[i]) == 0 {
			contents[i] = nil
		}
	}
	return contents, err
}
