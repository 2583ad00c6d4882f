package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/tunnel"
)

const (
	// maxRelayed bounds a request that gauthd forwards. It is held in memory while controllers are
	// tried; scripts are seldom larger, and a larger one is sent directly.
	maxRelayed = 256 << 10
	// forwardTime is how long controllers are tried for one call: less than the
	// caller waits.
	forwardTime = attemptTimeout - time.Second
	// readerTime is how long a caller may take to read a piece of the answer.
	readerTime = time.Minute
)

// Forwarder forwards calls of a host's users to the controllers, over connections that stay open.
// It asks each controller once; the caller waits and retries. Safe for concurrent use.
type Forwarder struct {
	calls *failover
	// large is for requests over maxRelayed. nil refuses those: the caller sends them to a
	// controller directly.
	large *largePlaces
	// tunnels counts those that are open.
	tunnels atomic.Int64
}

const (
	// maxJobRequest bounds a request from inside a job, which has no other way: as much as a
	// controller reads.
	maxJobRequest = 16 << 20
	// maxLarge bounds the requests over maxRelayed that are held at a time.
	maxLarge = 4
)

// NewForwarder returns a forwarder. It does not connect until the first call.
func NewForwarder(controllers *Known, config *tls.Config) *Forwarder {
	return &Forwarder{calls: newFailover(Config{Known: controllers, TLS: config})}
}

// NewJobForwarder makes the Forwarder of a node, for the commands inside its jobs. They have no
// other connection to a controller: it accepts requests of any size, and if no controller responds,
// the error names the reason of each. config holds the node's certificate.
func NewJobForwarder(controllers *Known, config *tls.Config) *Forwarder {
	f := NewForwarder(controllers, config)
	f.large = &largePlaces{all: make(chan struct{}, maxLarge), users: make(map[uint32]*largePlace)}
	return f
}

// Forward forwards one call in the name of the token's user, and answers with the controller's
// answer. If none could be reached, or the request is too large, the answer is auth.RefuseRelay's.
// Of the request's own headers it forwards only those that describe its content. O(request) memory.
func (f *Forwarder) Forward(w http.ResponseWriter, request *http.Request, token string) {
	f.forward(w, request, 0, "Authorization", "Bearer "+token)
}

// ForwardFor is Forward in the name of an attempt of a user, authenticated by its node's certificate.
func (f *Forwarder) ForwardFor(w http.ResponseWriter, request *http.Request, a auth.Attempt, uid uint32) {
	if request.URL.Path == procedure.Prefix+tunnel.Connect {
		f.connectTunnel(w, request, auth.AttemptHeader, a.String())
		return
	}
	f.forward(w, request, uid, auth.AttemptHeader, a.String())
}

// forward forwards a call with the header that identifies the caller.
func (f *Forwarder) forward(w http.ResponseWriter, request *http.Request, uid uint32, header, value string) {
	body, release, err := f.read(w, request, uid)
	if err != nil {
		auth.RefuseRelay(w, http.StatusRequestEntityTooLarge, unsent{err})
		return
	}
	defer release()
	deadline := time.Now().Add(forwardTime)
	err = errors.New("no controller is named")
	sent := false
	// Once more than there are controllers: the first may name the leader.
	for n, most := 1, len(f.calls.controllers())+1; n <= most; n++ {
		left := min(f.calls.timeoutFor(n, true), time.Until(deadline))
		if left <= 0 || request.Context().Err() != nil {
			break
		}
		ctx, cancel := context.WithCancel(request.Context())
		timer := time.AfterFunc(left, cancel)
		a := f.ask(request.Context(), outward(ctx, request, body, header, value))
		timer.Stop() // a list may take long to arrive
		f.calls.learn(a)
		sent = sent || a.sent
		if err = a.err; n == most && a.outcome == notNow {
			err = f.failure(request.Context(), a)
		}
		if err == nil && (a.outcome == answered || a.outcome == limited || n == most) {
			release() // the answer may be an endless stream
			pass(w, a.response)
			cancel()
			return
		}
		a.discard()
		cancel()
	}
	auth.RefuseRelay(w, http.StatusBadGateway, markUnsent(err, sent))
}

// failure returns why the last attempt failed. If there is no leader, commands inside jobs get the
// answer of each controller, as a command on a login node does. nil: use the attempt's own answer.
func (f *Forwarder) failure(ctx context.Context, a *attempt) error {
	silent := a.err != nil || a.response.Header.Get(CodeHeader) == CodeNoLeader
	if f.large == nil || !silent || ctx.Err() != nil {
		return a.err
	}
	if surveyed := f.calls.probeLeaders(ctx); surveyed != nil {
		return surveyed
	}
	return a.err
}

// read returns the body of a request of a user, which is held until release is called.
func (f *Forwarder) read(w http.ResponseWriter, request *http.Request, uid uint32) (body []byte, release func(), err error) {
	limit, release := int64(maxRelayed), func() {}
	if f.large != nil && (request.ContentLength < 0 || request.ContentLength > limit) {
		limit = maxJobRequest
		if release, err = f.large.take(request.Context(), uid); err != nil {
			return nil, nil, err
		}
	}
	body, err = io.ReadAll(http.MaxBytesReader(w, request.Body, limit))
	if err != nil {
		release()
	}
	return body, release, err
}

// ask sends a request to the controller whose turn it is. The answer's body is
// still to be read.
func (f *Forwarder) ask(caller context.Context, request *http.Request) *attempt {
	a := &attempt{target: f.calls.target()}
	request.URL.Host, request.Host = a.target, a.target
	direct, err := f.calls.direct()
	if err == nil {
		a.response, err = direct.forLists(request).RoundTrip(request)
		a.sent = !dialFailed(err)
	}
	if err != nil {
		return a.failed(caller, err)
	}
	a.outcome = byStatus(a.response)
	return a
}

// outward returns the request as a controller gets it.
func outward(ctx context.Context, request *http.Request, body []byte, header, value string) *http.Request {
	out := request.Clone(ctx)
	out.RequestURI, out.URL.Scheme, out.TransferEncoding = "", "https", nil
	out.Close = false // the caller's request for its own connection
	out.Header = make(http.Header)
	for name, values := range request.Header {
		if name == "User-Agent" || name == "Accept-Encoding" || strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "Connect-") {
			out.Header[name] = values
		}
	}
	out.Header.Set(header, value)
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return out
}

// pass copies an answer. One that breaks off is cut, so that the caller notices.
func pass(w http.ResponseWriter, response *http.Response) {
	defer response.Body.Close()
	for name, values := range response.Header {
		if name != "Connection" && name != "Keep-Alive" && name != auth.RelayHeader {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(response.StatusCode)
	control, live := http.NewResponseController(w), streams(response)
	for piece := make([]byte, pieceSize(response)); ; {
		n, err := response.Body.Read(piece)
		if n > 0 {
			_ = control.SetWriteDeadline(time.Now().Add(readerTime)) // a connection of ours always has one
			if _, failed := w.Write(piece[:n]); failed != nil {
				return // the caller has gone
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			panic(http.ErrAbortHandler) // how net/http aborts a connection
		case live:
			_ = control.Flush() // as above
		}
	}
}

// pieceSize is how much of an answer is read at once.
func pieceSize(response *http.Response) int64 {
	const most, least = 64 << 10, 512
	if response.ContentLength < 0 {
		return most
	}
	return min(max(response.ContentLength, least), most)
}
