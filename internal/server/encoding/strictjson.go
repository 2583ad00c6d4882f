// Package encoding reads requests and writes answers where Connect itself is too lenient or too slow:
// it refuses unknown JSON fields and enum values, and answers plain calls on a fast path.
package encoding

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/greylag/greylag/internal/wire"
)

// strictJSON reads JSON and refuses unknown fields, which Connect ignores: a grant with a
// misspelt "expires" would never expire.
type strictJSON struct{ name string }

// errNotProto is returned for a value that is no message. Generated code never passes one.
var errNotProto = errors.New("not a message of the API")

// StrictJSON makes handlers reject unknown fields.
func StrictJSON() connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithCodec(strictJSON{"json"}), connect.WithCodec(strictJSON{"json; charset=utf-8"}))
}

// Name returns the name of the encoding in content types.
func (c strictJSON) Name() string { return c.name }

// Marshal writes a message.
func (strictJSON) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, errNotProto
	}
	return protojson.Marshal(m)
}

// Unmarshal reads a message.
func (strictJSON) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return errNotProto
	}
	if len(data) == 0 {
		return errors.New("zero-length payload is not a valid JSON object")
	}
	if err := protojson.Unmarshal(data, m); err != nil {
		return fmt.Errorf("unmarshal into %T: %w", message, err)
	}
	return nil
}

// CheckEnums refuses a request with a number that is no value of its enum.
func CheckEnums(request any) error {
	if m, ok := request.(proto.Message); ok {
		return wire.CheckEnums(m.ProtoReflect())
	}
	return nil
}
