package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/procedure"
)

const retryAfter = "Retry-After"

const (
	// dialTimeout bounds connecting to one controller; a live one takes far less.
	dialTimeout = 2 * time.Second
	// firstTimeout is how long the first controllers may take to answer before the next is asked:
	// as long as an election, so that a stopped or isolated one does not delay the call. Once all
	// were asked, attemptTimeout is longer than a controller waits for a leader. Asking again is
	// harmless: the bytes and so the request ID are the same.
	firstTimeout, attemptTimeout = 2 * time.Second, 8 * time.Second
	// shortest is the minimum time of an attempt that the caller's deadline limits.
	shortest = 100 * time.Millisecond
	// firstPause and mostPause bound the pause after every controller has failed, which doubles.
	firstPause, mostPause = 50 * time.Millisecond, time.Second
	// maxAnswer bounds a unary answer: a page of 10,000 jobs has about 10 MB.
	maxAnswer = 128 << 20
)

// failover is the HTTP client under the typed ones: it sends a request to one
// controller after the other until one can answer it.
type failover struct {
	cfg   Config
	relay *relay                      // tried first; nil for none
	trust func() (*tls.Config, error) // called when the direct way is first used
	// socket is that of the task in which the program runs; "" outside jobs. All calls go there.
	socket string

	mu      sync.Mutex
	made    *transports
	refused error  // why the daemon behind socket did not forward the last call; nil: it did
	current string // the controller in use; "" before the first call
	leader  string // named by a controller; asked first until it fails
}

func newFailover(cfg Config) *failover {
	cfg.Controllers = distinct(cfg.Controllers)
	return &failover{
		cfg:   cfg,
		trust: func() (*tls.Config, error) { return cfg.TLS, nil },
	}
}

// controllers returns the currently known addresses.
func (f *failover) controllers() []string {
	if f.cfg.Known != nil {
		return f.cfg.Known.Addresses()
	}
	return f.cfg.Controllers
}

// direct returns the direct transports to the controllers.
func (f *failover) direct() (*transports, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.made == nil {
		trusted, err := f.trust()
		if err != nil {
			return nil, err
		}
		f.made = newTransports(trusted)
	}
	return f.made, nil
}

// close closes idle connections.
func (f *failover) close() {
	f.relay.close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.made != nil {
		f.made.CloseIdleConnections()
	}
}

// Do sends a request until an answer other than "not now" arrives, or time is up. Then it returns
// the result of the last attempt, or, if that one reached no controller, the last answer of one:
// the reason why it cannot answer is more useful than that another is missing. If none of them
// leads it reports the status of all; for a read-only call, as soon as that is known.
func (f *failover) Do(request *http.Request) (*http.Response, error) {
	if len(f.controllers()) == 0 {
		return nil, errors.New("no controller is named")
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	waits := procedure.OfPath(request.URL.Path).Tried() // no survey is due
	var refused *attempt
	limit := f.limit(request.Context())
	sent := false
	for n, turnedAway := 1, 0; ; n++ {
		a := f.attempt(request, body, min(f.timeoutFor(n, waits), max(limit-time.Since(began), shortest)))
		f.learn(a)
		sent = sent || a.sent
		if a.outcome == rejected {
			turnedAway++
		}
		if !waits && a.outcome == notNow && time.Since(began) >= surveyAfter {
			if err := f.probeLeaders(request.Context()); err != nil {
				a.discard()
				return nil, markUnsent(err, sent)
			}
			waits = true
		}
		wait, again := f.next(a, n, turnedAway)
		if a.outcome == notNow && a.body != nil {
			refused = a
		}
		tried := time.Since(began)
		left := limit - tried
		if !again || request.Context().Err() != nil || wait > left {
			response, err := f.last(request.Context(), a, refused)
			return response, markUnsent(err, sent)
		}
		if waits && f.cfg.Retry != nil && !a.astray { // the direct way is not tried twice
			f.cfg.Retry(a.reason(), tried, left)
		}
		a.discard()
		select {
		case <-time.After(wait):
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
}

// limit returns how long a call is tried. If the caller's deadline comes first, limit leaves enough
// of it to ask every controller for its status, so that the error names them.
func (f *failover) limit(ctx context.Context) time.Duration {
	deadline, set := ctx.Deadline()
	if left := time.Until(deadline) - 2*surveyTime; set && left >= firstTimeout {
		return min(f.cfg.Timeout, left)
	}
	return f.cfg.Timeout
}

// last returns the final result of a call; refused is the last attempt in which a controller reported
// why it cannot answer now, nil for none.
func (f *failover) last(ctx context.Context, a, refused *attempt) (*http.Response, error) {
	if a.outcome == notNow && a.response == nil && refused != nil {
		a = refused
	}
	if a.outcome == notNow && (a.response == nil || a.response.Header.Get(CodeHeader) == CodeNoLeader) && ctx.Err() == nil {
		if err := f.probeLeaders(ctx); err != nil {
			a.discard()
			return nil, err
		}
		if a.response == nil { // else connect takes a connection that was reset for a caller who left
			return nil, connect.NewError(connect.CodeUnavailable, a.err)
		}
	}
	return a.response, a.err
}

// target returns the controller to ask next.
func (f *failover) target() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leader != "" {
		return f.leader
	}
	return f.turn()
}

// turn returns the controller to use: a random one at first, and when the current one is no longer
// known. The caller holds f.mu.
func (f *failover) turn() string {
	all := f.controllers()
	if !slices.Contains(all, f.current) {
		f.current = ""
		if len(all) > 0 {
			f.current = all[rand.IntN(len(all))]
		}
	}
	return f.current
}

// learn records from an attempt which controller to ask next: the leader if it was named, the same
// again if it answered, else another.
func (f *failover) learn(a *attempt) {
	if a.relayed {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if named := a.leader(); named != "" && named != a.target {
		f.leader = named
		return
	}
	if a.outcome == answered || a.outcome == limited {
		return
	}
	if f.leader == a.target {
		f.leader = ""
		if f.turn() != a.target {
			return
		}
	}
	if f.turn() == a.target {
		all := f.controllers()
		f.current = all[(slices.Index(all, a.target)+1)%len(all)]
	}
}

// next returns whether to try again after the n-th attempt, and when. The first failures continue
// with the other controllers at once. A controller with a wrong clock accepts no token and may
// still lead for a moment: so all are asked twice.
func (f *failover) next(a *attempt, n, turnedAway int) (time.Duration, bool) {
	switch a.outcome {
	case answered:
		return 0, false
	case limited:
		return a.retryAfter(), true
	case rejected:
		all := len(f.controllers())
		if turnedAway < all {
			return 0, true
		}
		return firstPause, all > 1 && turnedAway < 2*all
	}
	if named := a.leader(); a.astray || !a.relayed && named != "" && named != a.target && n < 8 {
		return 0, true
	}
	round := n / max(len(f.controllers()), 1)
	if round == 0 {
		return 0, true
	}
	pause := min(firstPause<<min(round-1, 10), mostPause)
	return pause/2 + rand.N(pause), true
}

// timeoutFor returns how long the n-th attempt may take, for a call that waits and for one that
// does not, which a survey may follow.
func (f *failover) timeoutFor(n int, waits bool) time.Duration {
	if all := len(f.controllers()); (n <= all || !waits) && all > 1 {
		return firstTimeout
	}
	return attemptTimeout
}

// attempt sends the request once. It reads the answer to a unary call completely, so that a
// truncated one can be requested again.
func (f *failover) attempt(original *http.Request, body []byte, patience time.Duration) *attempt {
	a := &attempt{target: f.target()}
	ctx, cancel := context.WithCancel(original.Context())
	timer := time.AfterFunc(patience, cancel)
	defer timer.Stop()
	request := original.Clone(ctx)
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	request.GetBody = nil
	transport, err := f.transport(a, request)
	if err != nil {
		cancel()
		a.outcome, a.err = answered, err
		return a
	}
	response, err := transport.RoundTrip(request)
	a.sent = !dialFailed(err) && (response == nil || !auth.Unsent(response.Header))
	if a.relayed && original.Context().Err() == nil && (err != nil || refusedByRelay(response)) {
		defer cancel()
		return f.notPassedOn(a, response, err)
	}
	f.setRefused(nil)
	if err != nil {
		cancel()
		return a.failed(original.Context(), err)
	}
	if streams(response) {
		return a.opened(response, cancel, timer)
	}
	defer cancel()
	whole, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	response.Body.Close()
	if err != nil {
		return a.failed(original.Context(), fmt.Errorf("%s: the response was truncated: %w", a.target, err))
	}
	response.Body = io.NopCloser(bytes.NewReader(whole))
	a.response, a.body = response, whole
	a.outcome = byStatus(response)
	return a
}

// transport returns the transport of an attempt, and prepares the request for it.
func (f *failover) transport(a *attempt, request *http.Request) (http.RoundTripper, error) {
	if f.relay.handles(request) {
		a.relayed, request.URL.Scheme = true, "http"
		request.URL.Host, request.Host = relayHost, relayHost
		return f.relay.transport, nil
	}
	request.URL.Host, request.Host = a.target, a.target
	direct, err := f.direct()
	if err != nil {
		return nil, err
	}
	if f.socket != "" {
		a.relayed, request.URL.Scheme = true, "http"
		return direct, nil
	}
	return direct, f.prove(request)
}

// prove adds the caller's token.
func (f *failover) prove(request *http.Request) error {
	if f.cfg.Tokens == nil {
		return nil
	}
	token, err := f.cfg.Tokens.Token(request.Context())
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// streams reports whether the answer is a stream of messages.
func streams(response *http.Response) bool {
	return response.StatusCode == http.StatusOK &&
		strings.HasPrefix(response.Header.Get("Content-Type"), "application/connect+")
}

// byStatus classifies an answer. Exceeded rate limits are temporary; other limits, which name no
// time, are permanent. A controller that rejects a token may have a wrong clock: the others are
// asked too.
func byStatus(response *http.Response) outcome {
	switch response.StatusCode {
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return notNow
	case http.StatusUnauthorized:
		return rejected
	case http.StatusTooManyRequests:
		if response.Header.Get(retryAfter) != "" {
			return limited
		}
	}
	return answered
}

// permanent are the errors that the same controller will return again.
func permanent(err error) bool {
	return slices.ContainsFunc([]error{pki.ErrUntrusted, pki.ErrWrongRole, pki.ErrBadPeer}, func(e error) bool {
		return errors.Is(err, e)
	})
}

// seconds reads a Retry-After header.
func seconds(text string) time.Duration {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n < 3600) {
		return firstPause
	}
	return max(time.Duration(n*float64(time.Second)), firstPause)
}
