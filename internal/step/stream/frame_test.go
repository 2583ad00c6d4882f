package stream

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// FuzzRead checks that any bytes give an error or a frame that is written as it was read, and that a
// frame never holds more than its kind allows.
func FuzzRead(f *testing.F) {
	f.Add([]byte{byte(Stdout), 0, 0, 0, 3, 0, 0, 0, 2, 'x', '\n'})
	f.Add([]byte{byte(Start), 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'})
	f.Add([]byte{byte(Exited), 0, 0, 0, 0, 0, 0, 0, 1, 3})
	f.Add([]byte{200, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := Read(iotest.OneByteReader(bytes.NewReader(data)), make([]byte, 16))
		if err != nil {
			return
		}
		if int64(len(frame.Payload)) > limit(frame.Kind) {
			t.Errorf("kind %d with %d bytes", frame.Kind, len(frame.Payload))
		}
		again := append(make([]byte, HeaderSize), frame.Payload...)
		putHeader(again, frame.Kind, frame.Number)
		if !bytes.Equal(again, data[:len(again)]) {
			t.Errorf("%x became %x", data[:len(again)], again)
		}
		var any AbortRequest
		_ = frame.Decode(&any) // it must not panic
	})
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"end":            {nil, io.EOF},
		"cut header":     {[]byte{byte(Done), 0}, io.ErrUnexpectedEOF},
		"cut payload":    {[]byte{byte(Stdout), 0, 0, 0, 0, 0, 0, 0, 2, 'x'}, io.ErrUnexpectedEOF},
		"no payload":     {[]byte{byte(Stdout), 0, 0, 0, 0, 0, 0, 0, 2}, io.ErrUnexpectedEOF},
		"cut long":       {append([]byte{byte(Start), 0, 0, 0, 0, 1, 0, 0, 0}, make([]byte, 100)...), io.ErrUnexpectedEOF},
		"long data":      {[]byte{byte(Stdin), 0, 0, 0, 0, 0, 1, 0, 1}, ErrFrame},
		"4 GiB":          {[]byte{byte(Fence), 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, ErrFrame},
		"unknown":        {[]byte{99, 0, 0, 0, 0, 0, 0, 0, 0}, ErrFrame},
		"payload denied": {[]byte{byte(Done), 0, 0, 0, 0, 0, 0, 0, 1, 1}, ErrFrame},
	} {
		if _, err := Read(bytes.NewReader(c.data), make([]byte, 64)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
