package client

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
)

// codec is connect's for protobuf, except that it reads lists of jobs by wire.ReadList.
type codec struct{}

// Name returns its name in the protocol.
func (codec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (c codec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend saves connect a copy.
func (codec) MarshalAppend(to []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(to, m)
}

// Unmarshal implements connect.Codec.
func (codec) Unmarshal(data []byte, message any) error {
	switch m := message.(type) {
	case *greylagv1.ListJobsResponse:
		return wire.ReadList(data, m)
	case proto.Message:
		return proto.Unmarshal(data, m)
	}
	return fmt.Errorf("%T is not a protobuf message", message)
}
