package client

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/greylag/greylag/internal/procedure"
)

// transports handles requests: a call with one answer over HTTP/1.1, which costs client and
// controller about half of what HTTP/2 does, and a stream over HTTP/2, whose pings detect that a
// controller's host has vanished.
type transports struct{ calls, streams *http.Transport }

// idlePerHost is how many connections are kept for concurrent calls.
const idlePerHost = 32

func newTransports(config *tls.Config) *transports {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	transport := func(config *tls.Config) *http.Transport {
		return &http.Transport{
			DialContext:         dialer.DialContext,
			TLSClientConfig:     config,
			TLSHandshakeTimeout: dialTimeout + time.Second,
			IdleConnTimeout:     time.Minute,
			MaxIdleConnsPerHost: idlePerHost,
			Protocols:           new(http.Protocols),
		}
	}
	r := &transports{calls: transport(config.Clone()), streams: transport(config)}
	r.calls.TLSClientConfig.NextProtos = []string{"http/1.1"}
	r.calls.Protocols.SetHTTP1(true)
	r.streams.Protocols.SetHTTP1(true)
	r.streams.Protocols.SetHTTP2(true)
	r.streams.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second}
	return r
}

// RoundTrip sends a request by the transport for its kind.
func (r *transports) RoundTrip(request *http.Request) (*http.Response, error) {
	if unary(request) {
		return r.calls.RoundTrip(request)
	}
	return r.streams.RoundTrip(request)
}

// forLists returns the transport for a forwarded call. Lists use HTTP/1.1 too, since the caller can
// abandon one that stalls; endless streams need the pings of HTTP/2.
func (r *transports) forLists(request *http.Request) http.RoundTripper {
	if procedure.OfPath(request.URL.Path).Relayed {
		return r.calls
	}
	return r
}

// newNodeTransport returns the transport to the socket of a task, through which its node forwards calls.
func newNodeTransport(socket string) *transports {
	dialer := net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		IdleConnTimeout: time.Second,
	}
	return &transports{calls: transport, streams: transport}
}

// unary reports whether a call has one request and one answer.
// Source: connectrpc.com/docs/protocol.
func unary(request *http.Request) bool {
	kind := request.Header.Get("Content-Type")
	return kind == "application/proto" || kind == "application/json"
}

// CloseIdleConnections closes unused connections.
func (r *transports) CloseIdleConnections() {
	r.calls.CloseIdleConnections()
	r.streams.CloseIdleConnections()
}
