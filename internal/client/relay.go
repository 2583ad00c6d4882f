package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/procedure"
)

// relay is the way through the gauthd of this host, which has connections to the
// controllers open and says who calls. It is for programs that make few calls: it
// saves them a token, a handshake and the reading of the cluster's CA. Whatever
// goes wrong on it, the direct way is taken instead, with the same bytes. Safe for
// concurrent use; nil is no relay.
type relay struct {
	transport *http.Transport
	shut      atomic.Bool // gauthd does not carry calls, or reaches no controller
}

// relayHost stands for gauthd where a request names a host.
const relayHost = "gauthd"

func newRelay(socket string) *relay {
	dialer := net.Dialer{Timeout: dialTimeout}
	return &relay{transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		IdleConnTimeout: time.Second,
	}}
}

// handles reports whether a call may go through gauthd: one that ends by itself,
// with a small request.
func (r *relay) handles(request *http.Request) bool {
	return r != nil && !r.shut.Load() && request.ContentLength <= maxRelayed &&
		(unary(request) || procedure.OfPath(request.URL.Path).Relayed)
}

// close closes idle connections.
func (r *relay) close() {
	if r != nil {
		r.transport.CloseIdleConnections()
	}
}

// refusedByRelay reports whether gauthd itself answered.
func refusedByRelay(response *http.Response) bool {
	return response.Header.Get(auth.RelayHeader) != ""
}

// notPassedOn records an attempt that a daemon of this host did not forward.
func (f *failover) notPassedOn(a *attempt, response *http.Response, err error) *attempt {
	if f.socket != "" {
		return f.refusedByNode(a, response, err)
	}
	return f.astray(a, response, err)
}

// astray notes an attempt that gauthd did not pass on. The direct way is taken from
// now on; where the fault lies at the controllers, it finds the same and can say so.
func (f *failover) astray(a *attempt, response *http.Response, err error) *attempt {
	f.relay.shut.Store(true)
	switch {
	case err == nil:
		response.Body.Close()
		err = errors.New(response.Status)
	case errors.Is(err, context.Canceled): // by this attempt's own clock
		err = errLeft
	}
	a.outcome, a.astray, a.err = notNow, true, notReached(a.target, fmt.Errorf("by way of gauthd: %w", err))
	return a
}
