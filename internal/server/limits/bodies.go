package limits

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/server/call"
)

// Bounds of the bytes of requests that this controller holds at one time. A request counts with its
// headers from its start, and with its body as it arrives, until it is answered.
const (
	// MaxBody bounds the body of one request. A log entry holds 1 MiB, but scripts go
	// in parts.
	MaxBody = 16 << 20
	// maxOpenBody bounds that of a call without a token or a certificate, such as Join.
	maxOpenBody = 64 << 10
	// MaxHead bounds the headers of one request, in bytes.
	MaxHead = 16 << 10
	// requestCost is the fixed cost of a request in addition to its bytes.
	requestCost = 1 << 10
	// heldInAll bounds the requests of all users, heldOpen those without proof of identity.
	heldInAll, heldOpen = 128 << 20, 4 << 20
	// heldByCaller bounds those of one user or program, heldByAddress those without
	// proof from one address.
	heldByCaller, heldByAddress = 2 * MaxBody, 1 << 20
	// busyTime is the Retry-After of such a refusal: a call takes some milliseconds.
	busyTime = time.Second
)

// budget counts the bytes of requests that are being read or answered. Operators and
// programs of the cluster, including nodes with their reports, have budgets of their
// own: users cannot exhaust them.
type budget struct {
	mu      sync.Mutex
	users   int
	open    int
	callers map[string]int
}

// ErrTooLarge is returned for a request that is larger than its limit.
var ErrTooLarge = errors.New("the request is larger")

// ErrFull is returned to a caller while too many bytes of requests are held.
var ErrFull = errors.New("too many bytes of requests in flight")

// full returns ErrFull with the limit that was reached.
func full(format string, args ...any) error {
	return hint.New(&limited{fmt.Errorf("%w: "+format, append([]any{ErrFull}, args...)...), busyTime}, "retry in 1 s, with fewer or smaller calls at a time")
}

// take counts n more bytes for the caller.
func (b *budget) take(c *call.Caller, n int) error {
	key, most := c.Key(), heldByCaller
	if c.Open() {
		most = heldByAddress
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.callers[key]+n > most:
		return full("the limit for %s is %d bytes", key, most)
	case c.Open() && b.open+n > heldOpen:
		return full("the limit for calls without token or certificate is %d bytes", heldOpen)
	case !c.Open() && !c.Unlimited() && b.users+n > heldInAll:
		return full("the limit for all users is %d bytes", heldInAll)
	}
	b.count(c, key, n)
	return nil
}

// release is the reverse of take.
func (b *budget) release(c *call.Caller, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(c, c.Key(), -n)
}

// count changes what is held. The caller holds mu.
func (b *budget) count(c *call.Caller, key string, n int) {
	if b.callers[key] += n; b.callers[key] == 0 {
		delete(b.callers, key)
	}
	switch {
	case c.Open():
		b.open += n
	case !c.Unlimited():
		b.users += n
	}
}

// Body is the body of a request. It counts what it reads; beyond the limit the caller gets an answer
// instead of a closed connection.
type Body struct {
	io.ReadCloser
	budget *budget
	caller *call.Caller
	limit  int   // of the body
	left   int   // of the limit
	held   int   // counted in the budget
	paid   int   // of it, for bytes that have not arrived yet
	err    error // the end of the body; it does not change
	refuse func(error) error
}

// closeAfter closes an HTTP/1 connection with the answer. Otherwise the answer would wait for a
// body that nothing reads.
func closeAfter(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// AdmitBody bounds the body of a request. The result counts until it is released. Its errors are those
// of explain.
func (l *Limits) AdmitBody(w http.ResponseWriter, r *http.Request, c *call.Caller, explain func(error) error) (*Body, error) {
	b := &Body{ReadCloser: r.Body, budget: &l.budget, caller: c, limit: MaxBody}
	b.refuse = func(err error) error {
		closeAfter(w, r)
		return explain(err)
	}
	if c.Open() {
		b.limit = maxOpenBody
	}
	if r.ContentLength > int64(b.limit) {
		return nil, b.refuse(b.tooLarge())
	}
	if 0 < r.ContentLength && r.ContentLength <= maxOpenBody { // readers release memory for it at once
		b.paid = int(r.ContentLength)
	}
	b.left, b.held = b.limit, requestCost+headBytes(r.Header)+b.paid
	if err := l.budget.take(c, b.held); err != nil {
		return nil, b.refuse(err)
	}
	return b, nil
}

func headBytes(h http.Header) (n int) {
	for key, values := range h {
		for _, value := range values {
			n += len(key) + len(value)
		}
	}
	return n
}

// Read reads from the body.
func (b *Body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if n > b.left {
		n, err = 0, b.refuse(b.tooLarge())
	}
	b.left -= n
	if more := n - b.paid; more > 0 {
		if full := b.budget.take(b.caller, more); full != nil {
			n, err = 0, b.refuse(full)
		} else {
			b.held += more
		}
	}
	b.paid = max(0, b.paid-n)
	b.err = err
	return n, err
}

// Release ends the counting of the request.
func (b *Body) Release() { b.budget.release(b.caller, b.held) }

// tooLarge returns the error for a body beyond its limit.
func (b *Body) tooLarge() error {
	if b.caller.Open() {
		return fmt.Errorf("%w than %d bytes, the limit for calls without token or certificate", ErrTooLarge, b.limit)
	}
	return fmt.Errorf("%w than %d bytes", ErrTooLarge, b.limit)
}
