// Package stream carries the frames between grun and the nodes of a step over one connection per
// node.
//
// It decides how a frame looks, how large each kind may be, and how much standard input may be under
// way. Writes block until the other side reads, so a slow reader loses no byte and memory stays
// bounded. The exception is standard input: a node must always read, since signals follow the input
// on the same connection. It therefore reports what its tasks took, and grun sends at most [Window]
// bytes more.
package stream

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Kind is what a frame holds.
type Kind uint8

// Kinds of frames from a node. Number is a rank unless noted.
const (
	Hello  Kind = iota + 1 // Number: node; payload: proof of the key
	Stdout                 // payload: output of a task
	Stderr
	Exited // payload: step.Exit
	Taken  // Number: bytes of standard input that all tasks took
	Fence  // payload: Pairs, of this node
	Abort  // payload: AbortRequest
	Done   // all tasks ended and their output was sent
	Held   // payload: Variables of the held job
	// Detached is the last frame to a program that leaves the step. Number: 1 if another one took it.
	Detached
)

// Kinds of frames to a node.
const (
	Start    Kind = iota + 65 // payload: step.Program
	Stdin                     // payload: input of the tasks
	StdinEnd                  // the input ended
	Signal                    // Number: signal for all tasks
	Resize                    // Number: rows and columns of the terminal
	End                       // payload: step.Ending
	Fenced                    // payload: Pairs, of all nodes
	Release                   // Number: exit status of the held job
	Dial                      // payload: DialRequest
	Attach                    // payload: AttachRequest; instead of Start for a step that runs
	Detach                    // the step continues without this program
	Keep                      // Number: step whose end ends the held job
)

// Pairs are the key-value pairs that PMI exchanges at a barrier. They need not be text.
type Pairs map[string]string

// DialRequest asks a node to connect to one of its ports, and to connect to grun as node
// ForwardBase+ID for the data.
type DialRequest struct {
	ID   uint32
	Port uint16
}

// AttachRequest takes the terminal of a running step.
type AttachRequest struct {
	Rows, Cols uint16
	Keep       bool // as in step.Program
}

// ForwardBase is larger than the number of nodes of any step.
const ForwardBase = 1 << 24

// Variables are environment variables, NAME=VALUE.
type Variables []string

// AbortRequest is a task's request to end the step.
type AbortRequest struct {
	Rank, Code int
	Message    string
}

// The largest payloads.
const (
	MaxHello   = 256
	MaxData    = 64 << 10
	MaxControl = 32 << 20
)

// Window bounds the standard input that a node has received and its tasks have not taken.
const Window = 4 * MaxData

// HeaderSize is the size of a frame without its payload: kind, number, length.
const HeaderSize = 9

// ErrFrame is wrapped by the errors for data that is not a valid frame.
var ErrFrame = errors.New("invalid frame")

// Frame is one message.
type Frame struct {
	Kind    Kind
	Number  uint32
	Payload []byte
}

// Decode decodes the payload of a control frame.
func (f *Frame) Decode(into any) error {
	if err := gob.NewDecoder(bytes.NewReader(f.Payload)).Decode(into); err != nil {
		return fmt.Errorf("%w of kind %d: %w", ErrFrame, f.Kind, err)
	}
	return nil
}

// limit returns the largest payload of a kind; negative for an unknown kind.
func limit(kind Kind) int64 {
	switch kind {
	case Hello:
		return MaxHello
	case Stdout, Stderr, Stdin:
		return MaxData
	case Taken, Done, StdinEnd, Signal, Resize, Release, Detached, Detach, Keep:
		return 0
	case Exited, Fence, Abort, Start, End, Fenced, Held, Dial, Attach:
		return MaxControl
	}
	return -1
}

// Read reads one frame. The payload is in buffer when it fits. Memory for a larger one grows with
// what arrives, not with what the header says. At the end of r between two frames the error is
// io.EOF.
func Read(r io.Reader, buffer []byte) (Frame, error) {
	var header [HeaderSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Kind: Kind(header[0]), Number: binary.BigEndian.Uint32(header[1:])}
	size := int64(binary.BigEndian.Uint32(header[5:]))
	if most := limit(f.Kind); size > most {
		return Frame{}, fmt.Errorf("%w: kind %d with %d bytes", ErrFrame, f.Kind, size)
	}
	if size <= int64(len(buffer)) {
		f.Payload = buffer[:size]
		_, err := io.ReadFull(r, f.Payload)
		return f, cutShort(err)
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, r, size)
	f.Payload = b.Bytes()
	return f, cutShort(err)
}

// cutShort makes the end of the input within a frame an error of its own.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// putHeader writes a frame's header into the first HeaderSize bytes of frame.
func putHeader(frame []byte, kind Kind, number uint32) {
	frame[0] = byte(kind)
	binary.BigEndian.PutUint32(frame[1:], number)
	binary.BigEndian.PutUint32(frame[5:], uint32(len(frame)-HeaderSize))
}

// Conn sends and receives frames. Any goroutine may send; one receives.
type Conn struct {
	net.Conn
	reader  io.Reader
	payload []byte
	sending sync.Mutex
}

// readBuffer holds several frames of short lines.
const readBuffer = 2 * MaxData

// Raw returns the connection for data without frames.
func (c *Conn) Raw() net.Conn { return &raw{c.Conn, c.reader} }

// raw is a connection with a reader that has already read some of its bytes.
type raw struct {
	net.Conn
	reader io.Reader
}

// CloseWrite ends the data of this end.
func (r *raw) CloseWrite() error { return r.Conn.(*tls.Conn).CloseWrite() }

// Read reads from the buffer first.
func (r *raw) Read(p []byte) (int, error) { return r.reader.Read(p) }

// Receive returns the next frame. Its payload is valid until the next call.
func (c *Conn) Receive() (Frame, error) { return Read(c.reader, c.payload) }

// Send sends a frame without a payload.
func (c *Conn) Send(kind Kind, number uint32) error {
	return c.SendInPlace(kind, number, make([]byte, HeaderSize))
}

// SendData sends a copy of data, of at most MaxData bytes.
func (c *Conn) SendData(kind Kind, number uint32, data []byte) error {
	return c.SendInPlace(kind, number, append(make([]byte, HeaderSize, HeaderSize+len(data)), data...))
}

// SendInPlace sends a payload that begins HeaderSize bytes after the start of frame.
func (c *Conn) SendInPlace(kind Kind, number uint32, frame []byte) error {
	putHeader(frame, kind, number)
	c.sending.Lock()
	defer c.sending.Unlock()
	_, err := c.Write(frame)
	return err
}

// SendValue sends a control frame.
func (c *Conn) SendValue(kind Kind, value any) error {
	var b bytes.Buffer
	b.Write(make([]byte, HeaderSize))
	if err := gob.NewEncoder(&b).Encode(value); err != nil {
		return err
	}
	if b.Len()-HeaderSize > MaxControl {
		return fmt.Errorf("message of %d bytes is too large, at most %d", b.Len()-HeaderSize, MaxControl)
	}
	return c.SendInPlace(kind, 0, b.Bytes())
}
