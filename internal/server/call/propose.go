package call

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/greylag/greylag/internal/command"
)

// Proposer gets commands agreed: the leading controller.
type Proposer interface {
	Propose(ctx context.Context, c command.Command) (command.Result, uint64, error)
}

// Propose commits a command and returns its result and its log index. A refusal is an error.
func Propose[T command.Result](ctx context.Context, leader Proposer, c command.Command) (T, uint64, error) {
	var none T
	result, index, err := leader.Propose(ctx, c)
	if err != nil {
		return none, 0, err
	}
	if refusal, ok := result.(*command.Refusal); ok {
		return none, 0, refusal
	}
	answer, ok := result.(T)
	if !ok {
		return none, 0, fmt.Errorf("%T was answered by %T", c, result)
	}
	return answer, index, nil
}

// Refuse returns the error for a request that cannot be carried out.
func Refuse(code command.Code, hint, format string, args ...any) error {
	return &command.Refusal{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// maxRequestID bounds the request ID of a client, in bytes.
const maxRequestID = 128

// RequestID makes a client's request ID the caller's own, for one operation and one part of it.
// An empty ID asks for no guarantee. payload is the content of
// the request: equal bytes for equal requests.
func (c *Caller) RequestID(id, part string, payload []byte) (command.RequestID, error) {
	var r command.RequestID
	if id == "" {
		return r, nil
	}
	if len(id) > maxRequestID {
		return r, Refuse(command.InvalidArgument, "use 32 hexadecimal digits", "the request ID has %d bytes: at most %d", len(id), maxRequestID)
	}
	c.Request = id
	if c.SameByID {
		payload = nil
	}
	key := sha256.Sum256([]byte(c.User.User + "\x00" + strconv.FormatUint(uint64(c.User.UID), 10) + "\x00" + string(c.RPC.Name) + "\x00" + part + "\x00" + id))
	what := sha256.Sum256(payload)
	copy(r.Key[:], key[:])
	copy(r.Payload[:], what[:])
	return r, nil
}

// Request is a request with a client's request ID.
type Request interface {
	proto.Message
	GetRequestId() string
}

// Identify returns the request ID of a request that one command carries out.
func (c *Caller) Identify(p Request) (id command.RequestID, err error) {
	payload, err := Payload(p)
	if err != nil {
		return id, err
	}
	return c.RequestID(p.GetRequestId(), "", payload)
}

// Payload returns the request's content without its ID: equal bytes for equal requests of one
// version of the protocol.
func Payload(p Request) ([]byte, error) {
	plain := proto.Clone(p)
	fields := plain.ProtoReflect().Descriptor().Fields()
	plain.ProtoReflect().Clear(fields.ByName("request_id"))
	return proto.MarshalOptions{Deterministic: true}.Marshal(plain)
}
