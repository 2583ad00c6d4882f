package tunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/procedure"
)

// dialTime bounds connecting to one controller.
const dialTime = 2 * time.Second

// Request returns a request to a controller for a connection of a kind. The caller may add headers that
// authenticate it.
func Request(ctx context.Context, kind string, id ID) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://controller"+procedure.Prefix+kind, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", Protocol)
	request.Header.Set(IDHeader, id.String())
	return request, nil
}

// Requested returns the ID that a request names.
func Requested(r *http.Request) (ID, error) {
	if r.Header.Get("Upgrade") != Protocol || r.ProtoMajor != 1 {
		return ID{}, fmt.Errorf("want HTTP/1.1 with the headers Upgrade: %s and %s: ID", Protocol, IDHeader)
	}
	return ParseID(r.Header.Get(IDHeader))
}

// Upgrade sends a request over a new connection, with TLS if config is not nil. It returns the
// connection after the server has switched to this protocol.
func Upgrade(ctx context.Context, request *http.Request, network, address string, config *tls.Config) (_ net.Conn, err error) {
	dialer := net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if config != nil {
		conn = tls.Client(conn, config)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			conn.Close()
		}
	}()
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, err
	}
	switch response.StatusCode {
	case http.StatusSwitchingProtocols:
		return &buffered{conn, reader}, nil
	case http.StatusNotFound:
		return nil, ErrNoListener
	}
	const maxText = 4 << 10
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxText)) // a truncated text is still useful
	err = fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
	if response.StatusCode < http.StatusInternalServerError {
		err = &refusal{err}
	}
	return nil, err
}

// refusal is the answer of a controller that repeats it to every attempt.
type refusal struct{ error }

// Unwrap returns the answer.
func (r *refusal) Unwrap() error { return r.error }

// refused reports whether a controller refused, so that another attempt is useless.
func refused(err error) bool {
	_, is := errors.AsType[*refusal](err)
	return is || errors.Is(err, ErrNoListener) || errors.Is(err, ErrTooMany)
}

// buffered is a connection with a reader that has already read some of its bytes.
type buffered struct {
	net.Conn
	reader *bufio.Reader
}

// Read reads from the buffer first.
func (b *buffered) Read(p []byte) (int, error) { return b.reader.Read(p) }

// Switch answers a request with 101 and returns its connection. The client must not send data before
// the answer.
func Switch(w http.ResponseWriter) (net.Conn, error) {
	conn, early, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	if err = conn.SetDeadline(time.Time{}); err == nil {
		_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Protocol)
	}
	if err == nil && early.Reader.Buffered() > 0 {
		err = errors.New("the client sent data before the answer")
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Node connects from inside a job, through the socket of the node's daemon.
type Node struct{ Socket string }

// Open opens a connection. The node's daemon chooses the controller.
func (n Node) Open(ctx context.Context, _, kind string, id ID) (net.Conn, string, error) {
	request, err := Request(ctx, kind, id)
	if err != nil {
		return nil, "", err
	}
	conn, err := Upgrade(ctx, request, "unix", n.Socket, nil)
	return conn, "", err
}
