package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/hint"
)

// nodeTarget stands for the daemon of the node where a request names a host.
const nodeTarget = "gnoded"

// dialNode returns a client for a command inside a job. All its calls go through the socket that
// the node serves for the task, without a token.
func dialNode(cfg config.Client) (*Client, error) {
	if cfg.Direct {
		return nil, hint.New(errors.New("inside a job the node chooses the controller"), "omit --controller, or run the command on a login node")
	}
	c := New(Config{Controllers: []string{nodeTarget}, Timeout: cfg.Timeout})
	c.calls.socket, c.calls.made = cfg.JobSocket, newNodeTransport(cfg.JobSocket)
	return c, nil
}

// maxRefusal bounds the text of a refusal.
const maxRefusal = 4 << 10

// refusedByNode records an attempt that gnoded did not forward, or that did not reach it. If no
// controller answers or gnoded is restarting, another attempt may succeed.
func (f *failover) refusedByNode(a *attempt, response *http.Response, err error) *attempt {
	message, advice := "", "retry, since gnoded may be restarting; administrators: check journalctl -u gnoded on this node"
	switch {
	case errors.Is(err, context.Canceled): // by this attempt's own clock
		message = "gnoded on this node did not answer in time on " + f.socket
	case err != nil:
		message = fmt.Sprintf("gnoded on this node does not answer: %v", err)
	default:
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // a truncated text is still useful
		response.Body.Close()
		message, advice = strings.TrimSpace(string(text)), response.Header.Get(auth.HintHeader)
	}
	a.outcome = notNow
	code := connect.CodeUnavailable
	switch {
	case errors.Is(err, fs.ErrPermission):
		a.outcome, code, advice = answered, connect.CodePermissionDenied, "only processes of the job's user may use it"
	case err != nil, response.StatusCode == http.StatusBadGateway:
	case response.StatusCode == http.StatusForbidden:
		a.outcome, code = answered, connect.CodePermissionDenied
	default:
		a.outcome, code = answered, connect.CodeInvalidArgument
	}
	a.err = connect.NewError(code, hint.New(errors.New(message), advice))
	f.setRefused(a.err)
	return a
}

// setRefused records why gnoded did not forward the last call; nil: it did.
func (f *failover) setRefused(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = why
}
