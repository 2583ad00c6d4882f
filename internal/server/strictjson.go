package server

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// exactJSON reads JSON as Connect does, which leaves out what it does not know, but for
// changes of credits: a grant with a misspelt "expires" would never expire.
type exactJSON struct{ name string }

// errNotProto is for what is no message; the generated code hands in nothing else.
var errNotProto = errors.New("not a message of the API")

// withStrictJSON has handlers read JSON so.
func withStrictJSON() connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithCodec(exactJSON{"json"}), connect.WithCodec(exactJSON{"json; charset=utf-8"}))
}

// Name is what Connect calls the encoding.
func (c exactJSON) Name() string { return c.name }

// Marshal writes a message.
func (exactJSON) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, errNotProto
	}
	return protojson.Marshal(m)
}

// Unmarshal reads one.
func (exactJSON) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return errNotProto
	}
	if len(data) == 0 {
		return errors.New("zero-length payload is not a valid JSON object")
	}
	_, exact := message.(*greylagv1.ChangeCreditsRequest)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: !exact}).Unmarshal(data, m); err != nil {
		return fmt.Errorf("unmarshal into %T: %w", message, err)
	}
	return nil
}
