package auth

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/procedure"
)

// RelayHeader is in answers that gauthd itself gives to a call that it should have forwarded. The
// client then calls a controller directly.
const RelayHeader = "Greylag-Relay"

// Forwarder forwards calls to the controllers.
type Forwarder interface {
	// Forward answers a call with a controller's answer. The token identifies the caller; what the
	// request says about that does not count.
	Forward(w http.ResponseWriter, request *http.Request, token string)
}

// HintHeader is the header with the hint of an error, in one line.
const HintHeader = "Greylag-Hint"

// ErrNotSent is wrapped by the error of a call that was sent to no controller, so that none can have
// changed anything.
var ErrNotSent = errors.New("the request was not sent")

// relayUnsent is the value of RelayHeader for such a call.
const relayUnsent = "unsent"

// Unsent reports whether gauthd or gnoded answered that it sent a call to no controller.
func Unsent(answer http.Header) bool { return answer.Get(RelayHeader) == relayUnsent }

// RefuseRelay answers a call that gauthd or gnoded does not forward.
func RefuseRelay(w http.ResponseWriter, status int, why error) {
	w.Header().Set(RelayHeader, "refused")
	if errors.Is(why, ErrNotSent) {
		w.Header().Set(RelayHeader, relayUnsent)
	}
	if advice := hint.Of(why); advice != "" {
		w.Header().Set(HintHeader, strings.Join(strings.Fields(advice), " "))
	}
	http.Error(w, why.Error(), status)
}

// callStart is how a call begins, where a token request begins differently. All calls are POST,
// which no browser and no careless program sends to a socket.
const callStart = "POST "

// Times of a call's connection; the answer's are the Forwarder's.
const (
	callTime     = 10 * time.Second // for the request to arrive
	jobCallTime  = 30 * time.Second // the same inside a job, where requests may be large
	callIdleTime = 5 * time.Second  // between two calls
	stopTime     = 2 * time.Second
)

// relayed is a connection of one user that carries calls.
type relayed struct {
	net.Conn
	front interface{ Read([]byte) (int, error) } // the bytes read to detect the protocol, then the connection
	user  peerUser
	once  sync.Once
	over  chan struct{}
}

// Read reads from the first byte on.
func (c *relayed) Read(p []byte) (int, error) { return c.front.Read(p) }

// Close ends the connection.
func (c *relayed) Close() error {
	c.once.Do(func() { close(c.over) })
	return c.Conn.Close()
}

// connListener passes accepted connections to the HTTP server: a net.Listener.
type connListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

// Accept returns the next connection, and net.ErrClosed once the listener is closed.
func (d *connListener) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// Close makes Accept end.
func (d *connListener) Close() error {
	d.once.Do(func() { close(d.done) })
	return nil
}

// Addr returns the socket's address.
func (d *connListener) Addr() net.Addr { return d.addr }

type peerKey struct{}

// relay serves the calls of connections that reach the listener, until it is closed and then for
// stopTime at most.
func (d *Daemon) relay(listener *connListener) {
	server := &http.Server{
		Handler:           http.HandlerFunc(d.call),
		ReadHeaderTimeout: readTime,
		ReadTimeout:       callTime,
		IdleTimeout:       callIdleTime,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          d.httpLog,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, c.(*relayed).user) // nothing else reaches the listener
		},
	}
	_ = server.Serve(listener) // ends with the listener
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}

var (
	errNotRelayed = errors.New("gauthd forwards only API calls")
	errOwnToken   = errors.New("gauthd adds the caller's identity: calls with a token go to a controller directly")
)

// isAPICall reports whether a request calls a procedure of the API.
func isAPICall(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, procedure.Prefix) && r.Method == http.MethodPost
}

// call forwards one call in the name of the user at the other end.
func (d *Daemon) call(w http.ResponseWriter, r *http.Request) {
	if !isAPICall(r) {
		RefuseRelay(w, http.StatusNotFound, errNotRelayed)
		return
	}
	if r.Header.Get("Authorization") != "" {
		RefuseRelay(w, http.StatusBadRequest, errOwnToken)
		return
	}
	user, _ := r.Context().Value(peerKey{}).(peerUser)
	token, err := d.token(r.Context(), user)
	if err != nil {
		// The caller requests a token next, and gets this error then.
		RefuseRelay(w, http.StatusForbidden, err)
		return
	}
	d.calls.Forward(w, r, token)
}

// peerUser returns the kernel's identity of a connection's other end.
type peerUser struct{ uid, gid uint32 }

// cachedToken is a token that serves the calls of one user for half its life, so that gauthd need
// not sign, nor the controller check, for each. Users never get it.
type cachedToken struct {
	token string
	fresh time.Time
}

// mostKept bounds the tokens in memory; a login node has fewer active users.
const mostKept = 4096

// token returns a user's token for forwarded calls.
func (d *Daemon) token(ctx context.Context, user peerUser) (string, error) {
	now := time.Now()
	d.mu.Lock()
	k := d.tokens[user]
	d.mu.Unlock()
	if now.Before(k.fresh) {
		return k.token, nil
	}
	token, err := d.vouch(ctx, user, now)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.tokens) >= mostKept {
		clear(d.tokens)
	}
	d.tokens[user] = cachedToken{token, now.Add(TokenLife / 2)}
	return token, nil
}
