// Package tunnel connects programs that can reach the controllers but not each other, such as grun on
// a login node and the nodes of a job.
//
// One program listens under a random ID, and others connect to that ID. A controller copies the bytes
// between the two and never interprets them. If a connection fails, both ends reconnect through
// another controller. They continue the same stream without losing or repeating a byte.
//
// The package never decides who may listen or connect: the server does. The programs authenticate
// each other inside the stream.
package tunnel

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"time"
)

// ID identifies a listener, or one connection to it. Any user who knows it may connect.
type ID [16]byte

// NewID returns a random ID.
func NewID() (id ID) {
	_, _ = rand.Read(id[:]) // never fails on Linux
	return id
}

// String returns the ID in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID is the inverse of String.
func ParseID(text string) (id ID, err error) {
	n, err := hex.Decode(id[:], []byte(text[:min(len(text), 2*len(id))]))
	if err != nil || n != len(id) || len(text) != 2*len(id) {
		return ID{}, errors.New("invalid tunnel ID: want 32 hexadecimal digits")
	}
	return id, nil
}

// Kinds of connections to a controller.
const (
	Listen  = "Tunnel/Listen"  // announces each connection by its ID
	Accept  = "Tunnel/Accept"  // the listener's end of an announced connection
	Connect = "Tunnel/Connect" // the connecting program's end
)

// IDHeader is the request header with the ID. Protocol is the value of the header Upgrade.
const (
	IDHeader = "Greylag-Tunnel"
	Protocol = "greylag-tunnel"
)

// ErrNoListener means that the controller knows no listener with the ID.
var ErrNoListener = errors.New("no listener has this tunnel ID")

// Controllers opens connections to controllers. If a controller does not know the ID, the error wraps
// [ErrNoListener].
type Controllers interface {
	// Open opens a connection of a kind to a controller, or to any one if controller is "". It returns
	// that controller.
	Open(ctx context.Context, controller, kind string, id ID) (net.Conn, string, error)
}

// resumeTime is how long a stream without a connection waits for its other end. It is longer than an
// election and longer than the restart of a controller.
const resumeTime = 30 * time.Second

// relistenTime is how long a listener may take to register at another controller.
const relistenTime = 10 * time.Second
