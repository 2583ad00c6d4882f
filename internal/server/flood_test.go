package server_test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/pki"
)

// HTTP/2 frames and flags. Source: RFC 9113, section 6.
const (
	frameHeaders, frameReset, frameSettings, frameContinuation = 1, 3, 4, 9
	flagEndHeaders                                             = 4
	errorCancel                                                = 8
)

// flooder is an HTTP/2 connection without a certificate whose frames are written by the test.
type flooder struct{ *tls.Conn }

// flood opens a connection and reads the server's answers until it ends.
func (w *world) flood() flooder {
	w.t.Helper()
	config := pki.ClientTLS(w.ca.Trust(), nil)
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", w.all[0].addr, config)
	must(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	must(w.t, conn.SetWriteDeadline(time.Now().Add(time.Minute)))
	f := flooder{conn}
	_, err = io.WriteString(f, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	must(w.t, errors.Join(err, f.frame(frameSettings, 0, 0, nil)))
	return f
}

func (f flooder) frame(kind, flags byte, stream uint32, content []byte) error {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(content))<<8|uint32(kind))
	head = binary.BigEndian.AppendUint32(append(head, flags), stream)
	_, err := f.Write(append(head, content...))
	return err
}

// request returns the header block of a call of Join, without Huffman coding. Source: RFC 7541.
func request() []byte {
	block := []byte{0x83, 0x87} // POST, https
	for _, field := range []struct {
		name  []byte // an index of the static table
		value string
	}{{[]byte{0x04}, "/greylag.v1.ClusterService/Join"}, {[]byte{0x01}, "x"}, {[]byte{0x0f, 0x10}, "application/proto"}} {
		block = append(append(block, field.name...), byte(len(field.value)))
		block = append(block, field.value...)
	}
	return block
}

// unharmed fails the test if a flood used much memory, or delayed other callers.
func (w *world) unharmed(what string, flood func()) {
	w.t.Helper()
	other := w.as(root)
	before := inUse()
	done := make(chan struct{})
	go func() {
		defer close(done)
		flood()
	}()
	var took []time.Duration
	for range 20 {
		begun := time.Now()
		_, err := other.Cluster().GetStatus(w.t.Context(), &greylagv1.GetStatusRequest{})
		must(w.t, err)
		took = append(took, time.Since(begun))
	}
	<-done
	slices.Sort(took)
	grown := int64(inUse()) - int64(before)
	w.t.Logf("%s: memory grew by %d KiB; other calls took %s (median), %s", what, grown>>10, took[10], took[19])
	if grown > 64<<20 {
		w.t.Errorf("%s: memory grew by %d bytes", what, grown)
	}
}

// TestHeadersWithoutAnEndAreCut sends a header block in an endless sequence of CONTINUATION frames.
func TestHeadersWithoutAnEndAreCut(t *testing.T) {
	const most = 256 << 20
	w := newWorld(serial{t}, options{})
	f := w.flood()
	field := append([]byte{0x00, 0x01, 'a', 0x7f, 0x81, 0x7e}, make([]byte, 16<<10-6)...) // a literal of 16 KiB
	sent := 0
	w.unharmed("CONTINUATION frames", func() {
		err := f.frame(frameHeaders, 0, 1, request())
		for ; err == nil && sent < most; sent += len(field) {
			err = f.frame(frameContinuation, 0, 1, field)
		}
	})
	if sent >= most {
		t.Errorf("the server read %d bytes of headers", sent)
	}
}

// TestRequestsThatAreResetAtOnce sends 20,000 requests on one connection, each cancelled in the
// next frame.
func TestRequestsThatAreResetAtOnce(t *testing.T) {
	const resets = 20_000
	w := newWorld(serial{t}, options{})
	f := w.flood()
	block, cancel := request(), binary.BigEndian.AppendUint32(nil, errorCancel)
	sent := 0
	var err error
	w.unharmed("resets", func() {
		for ; sent < resets && err == nil; sent++ {
			stream := uint32(2*sent + 1)
			err = errors.Join(f.frame(frameHeaders, flagEndHeaders, stream, block), f.frame(frameReset, 0, stream, cancel))
		}
	})
	t.Logf("the server took %d resets: %v", sent, err)
	w.submit(w.as(ann), job("after the flood"))
}
