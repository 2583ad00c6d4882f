// Package tunnel carries byte streams between two programs that can both reach the controllers but
// not each other, such as grun on a login node and the nodes of a job.
//
// One program listens under a random ID, others connect to that ID. A controller joins a connection
// of each and copies bytes; it never looks into them. When a connection is lost, both ends go to
// another controller, and continue the same stream without losing or repeating a byte. The package
// never decides who may listen or connect: the server does, and the programs prove to each other
// who they are inside the stream.
package tunnel

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"time"
)

// ID names a listener, or one connection to it. Any user who knows it may connect.
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
		return ID{}, errors.New("not the ID of a tunnel: want 32 hexadecimal digits")
	}
	return id, nil
}

// The kinds of connections to a controller.
const (
	Listen  = "Tunnel/Listen"  // announces each connection by its ID
	Accept  = "Tunnel/Accept"  // the listener's end of an announced connection
	Connect = "Tunnel/Connect" // the other end
)

// IDHeader is the header of a request with the ID, and Protocol the value of its header Upgrade.
const (
	IDHeader = "Greylag-Tunnel"
	Protocol = "greylag-tunnel"
)

// ErrNoListener means that the controller knows no listener with the ID.
var ErrNoListener = errors.New("nothing listens here")

// Controllers opens connections to controllers. An error of one that does not know the ID wraps
// [ErrNoListener].
type Controllers interface {
	// Open opens a connection of a kind to a controller; to "" any. It returns the controller.
	Open(ctx context.Context, controller, kind string, id ID) (net.Conn, string, error)
}

// resumeTime is how long a stream waits for its other end after it lost the connection: longer than
// an election, and than the restart of a controller.
const resumeTime = 30 * time.Second

// relistenTime is how long a listener may take to appear at another controller.
const relistenTime = 10 * time.Second
