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

// RelayHeader is in answers that gauthd itself gives to a call that it should have
// passed on. Whoever reads it calls a controller directly.
const RelayHeader = "Greylag-Relay"

// Forwarder passes calls on to the controllers.
type Forwarder interface {
	// Forward answers a call with a controller's answer to it. The token says who calls;
	// what the request says about that does not count.
	Forward(w http.ResponseWriter, request *http.Request, token string)
}

// HintHeader is the header with the hint of an error, in one line.
const HintHeader = "Greylag-Hint"

// RefuseRelay answers a call that gauthd or gnoded does not forward.
func RefuseRelay(w http.ResponseWriter, status int, why error) {
	w.Header().Set(RelayHeader, "refused")
	if advice := hint.Of(why); advice != "" {
		w.Header().Set(HintHeader, strings.Join(strings.Fields(advice), " "))
	}
	http.Error(w, why.Error(), status)
}

// callStart is how a call begins, where a request for a token begins otherwise. All
// calls are POST, which no browser and no careless program sends to a socket.
const callStart = "POST "

// Times of a call's connection; the answer's are the Forwarder's.
const (
	callTime     = 10 * time.Second // for the request to arrive
	jobCallTime  = 30 * time.Second // the same inside a job, where requests may be large
	callIdleTime = 5 * time.Second  // between two calls
	stopTime     = 2 * time.Second
)

// relayed is a connection that carries calls, of one user to its end.
type relayed struct {
	net.Conn
	front interface{ Read([]byte) (int, error) } // what was read to tell the language, then the connection
	user  peerUser
	once  sync.Once
	over  chan struct{}
}

// Read reads what was sent from the first byte on.
func (c *relayed) Read(p []byte) (int, error) { return c.front.Read(p) }

// Close ends the connection.
func (c *relayed) Close() error {
	c.once.Do(func() { close(c.over) })
	return c.Conn.Close()
}

// connListener is where accepted connections wait for the HTTP server: a net.Listener.
type connListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

// Accept returns the next connection, and net.ErrClosed once the desk is closed.
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

// Addr is the socket's.
func (d *connListener) Addr() net.Addr { return d.addr }

type peerKey struct{}

// relay serves the calls of connections that come to the desk, until the desk is
// closed and then for stopTime at most.
func (d *Daemon) relay(desk *connListener) {
	server := &http.Server{
		Handler:           http.HandlerFunc(d.call),
		ReadHeaderTimeout: readTime,
		ReadTimeout:       callTime,
		IdleTimeout:       callIdleTime,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          d.httpLog,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, c.(*relayed).user) // nothing else comes to the desk
		},
	}
	_ = server.Serve(desk) // ends with the desk
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}

var (
	errNotRelayed = errors.New("gauthd passes on calls of the API only")
	errOwnToken   = errors.New("gauthd says who calls: a call that says so itself goes to a controller directly")
)

// isAPICall reports whether a request calls a procedure of the API.
func isAPICall(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, procedure.Prefix) && r.Method == http.MethodPost
}

// call passes one call on in the name of the user at the other end.
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
		// The caller asks for a token next, and is told what is wrong in those words.
		RefuseRelay(w, http.StatusForbidden, err)
		return
	}
	d.calls.Forward(w, r, token)
}

// peerUser is who the kernel says is at the other end of a connection.
type peerUser struct{ uid, gid uint32 }

// cachedToken is a token that serves the calls of one user for half its life, so that
// gauthd need not sign, nor the controller check, for each. No user gets to see it.
type cachedToken struct {
	token string
	fresh time.Time
}

// mostKept bounds the tokens in memory; a login node has fewer users at work.
const mostKept = 4096

// token vouches for a user in calls that are passed on.
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
