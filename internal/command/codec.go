package command

import (
	"errors"

	"github.com/greylag/greylag/pkg/cluster"
)

// ErrMalformed is wrapped by the errors of the Decode functions for bytes that no
// Encode function wrote.
var ErrMalformed = errors.New("not a command")

// ErrUnsupported is wrapped by the errors of the Decode functions for bytes that a
// newer version of Greylag wrote and this one must not guess at.
var ErrUnsupported = errors.New("written by a newer version of greylag")

// Encode writes a command for the log. Equal commands give equal bytes. O(size).
func Encode(c Command) []byte { return nil }

// Decode reads what Encode wrote. Hostile bytes give an error, never a panic, and
// never more memory than a small multiple of their length.
func Decode(data []byte) (Command, error) { return nil, ErrMalformed }

// EncodeJob writes a job for the archive. Equal jobs give equal bytes.
func EncodeJob(j *cluster.Job) []byte { return nil }

// DecodeJob reads what EncodeJob wrote.
func DecodeJob(data []byte) (*cluster.Job, error) { return nil, ErrMalformed }
