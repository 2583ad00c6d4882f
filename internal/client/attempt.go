package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/greylag/greylag/internal/hint"
)

// outcome is the result of an attempt, as far as another one depends on it.
type outcome uint8

const (
	answered outcome = iota // success or refusal: passed to the caller
	notNow                  // this controller cannot answer now, another may
	limited                 // the caller exceeds its rate limit
	rejected                // this controller never will
)

// attempt is one transmission of a request to one controller.
type attempt struct {
	target   string
	outcome  outcome
	relayed  bool // sent through gauthd
	astray   bool // and not forwarded by it
	sent     bool // to a controller, as far as is known
	response *http.Response
	body     []byte // of a unary answer
	err      error
}

// errLeft ends an attempt without an answer in time.
var errLeft = errors.New("the controller does not answer")

func (a *attempt) failed(caller context.Context, err error) *attempt {
	switch {
	case caller.Err() != nil:
		a.outcome, a.err = answered, caller.Err()
	case permanent(err):
		a.outcome, a.err = rejected, err
	case errors.Is(err, context.Canceled):
		a.outcome, a.err = notNow, notReached(a.target, errLeft)
	default:
		a.outcome, a.err = notNow, notReached(a.target, err)
	}
	return a
}

// unreachable is an error of the connection to a controller, not of its answer.
type unreachable struct {
	target string
	err    error
}

// Error names the controller.
func (u *unreachable) Error() string { return "controller " + u.target + ": " + u.err.Error() }

// Unwrap returns the error without the controller.
func (u *unreachable) Unwrap() error { return u.err }

// notReached is an unreachable error with a hint.
func notReached(target string, err error) error {
	return hint.New(&unreachable{target, err}, "is gctld running there? "+listedIn+"; see gctl cluster status")
}

// listedIn says where the commands find the controllers.
const listedIn = "client.toml, or else client.d/controllers.toml, lists the controllers"

// opened checks the beginning of a stream: one that ends at once with "not now" has not begun.
// Format: connectrpc.com/docs/protocol, enveloped messages.
func (a *attempt) opened(response *http.Response, cancel context.CancelFunc, timer *time.Timer) *attempt {
	timer.Stop() // a stream may be silent for long
	const prefix = 5
	const endOfStream, maxEnd = 2, 64 << 10
	head := make([]byte, prefix)
	n, err := io.ReadFull(response.Body, head)
	head = head[:n]
	if err == nil && head[0]&endOfStream != 0 {
		end := make([]byte, min(binary.BigEndian.Uint32(head[1:]), maxEnd))
		n, _ := io.ReadFull(response.Body, end)
		head = append(head, end[:n]...)
		a.outcome = endOutcome(end[:n], response.Header)
	}
	response.Body = &stream{io.MultiReader(bytes.NewReader(head), response.Body), response.Body, cancel}
	a.response = response
	return a
}

func endOutcome(end []byte, header http.Header) outcome {
	var answer struct {
		Error    struct{ Code string }
		Metadata http.Header
	}
	if json.Unmarshal(end, &answer) != nil {
		return answered
	}
	for _, name := range []string{LeaderHeader, CodeHeader, retryAfter} {
		for key, values := range answer.Metadata {
			if http.CanonicalHeaderKey(key) == name && len(values) > 0 {
				header.Set(name, values[0])
			}
		}
	}
	switch answer.Error.Code {
	case "unavailable":
		return notNow
	case "unauthenticated":
		return rejected
	case "resource_exhausted":
		if header.Get(retryAfter) != "" {
			return limited
		}
	}
	return answered
}

// stream is a body that ends its attempt when it is closed.
type stream struct {
	io.Reader
	body   io.Closer
	cancel context.CancelFunc
}

// Close ends the attempt.
func (s *stream) Close() error {
	s.cancel()
	return s.body.Close()
}

// leader returns the controller that the answer named as the leader.
func (a *attempt) leader() string {
	if a.response == nil {
		return ""
	}
	return a.response.Header.Get(LeaderHeader)
}

func (a *attempt) retryAfter() time.Duration {
	return seconds(a.response.Header.Get(retryAfter))
}

// reason describes why another attempt is needed, for people.
func (a *attempt) reason() error {
	if a.err != nil {
		return a.err
	}
	var answer struct{ Message string }
	if json.Unmarshal(a.body, &answer) == nil && answer.Message != "" {
		return errors.New(answer.Message)
	}
	return notReached(a.target, errors.New(http.StatusText(a.response.StatusCode)))
}

func (a *attempt) discard() {
	if a.response != nil {
		a.response.Body.Close()
	}
}
