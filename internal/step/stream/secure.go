package stream

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"time"
)

// KeySize is the size of a step's key in bytes.
const KeySize = 16

// HandshakeTime bounds how long a connection may stay unauthenticated.
const HandshakeTime = 10 * time.Second

// ErrDenied is wrapped by the errors for a peer that is not of this step.
var ErrDenied = errors.New("not a peer of this step")

// Secret is grun's side of a step: a certificate and a key, made for this step alone.
type Secret struct {
	Fingerprint []byte // SHA-256 of the certificate
	Key         []byte
	config      *tls.Config
}

// NewSecret makes a certificate and a key.
func NewSecret() (*Secret, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, err
	}
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // it never fails
	sum := sha256.Sum256(der)
	return &Secret{Fingerprint: sum[:], Key: key, config: &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
	}}, nil
}

// proof is the HMAC that only a peer with the key can make, for this connection and node.
func proof(c *tls.Conn, key []byte, node uint32) ([]byte, error) {
	state := c.ConnectionState()
	bound, err := state.ExportKeyingMaterial("greylag step", nil, sha256.Size)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(bound)
	_ = binary.Write(mac, binary.BigEndian, node) // a hash never fails
	return mac.Sum(nil), nil
}

// Accept authenticates a connection of a node within HandshakeTime. It closes the connection on
// an error.
func (s *Secret) Accept(ctx context.Context, raw net.Conn) (conn *Conn, node int, err error) {
	c := tls.Server(raw, s.config)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if err := c.SetDeadline(time.Now().Add(HandshakeTime)); err != nil {
		return nil, 0, err
	}
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, 0, err
	}
	conn = newConn(c)
	f, err := Read(io.LimitReader(conn.reader, HeaderSize+MaxHello), nil)
	if err != nil {
		return nil, 0, err
	}
	want, err := proof(c, s.Key, f.Number)
	if err != nil {
		return nil, 0, err
	}
	if f.Kind != Hello || !hmac.Equal(f.Payload, want) {
		return nil, 0, fmt.Errorf("%w: wrong key", ErrDenied)
	}
	return conn, int(f.Number), c.SetDeadline(time.Time{})
}

// Client starts TLS with grun over raw. It closes raw on an error.
func Client(ctx context.Context, raw net.Conn, fingerprint string) (*Conn, error) {
	c := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, // the certificate is pinned instead
		VerifyConnection: func(state tls.ConnectionState) error {
			sum := sha256.Sum256(state.PeerCertificates[0].Raw)
			if hex.EncodeToString(sum[:]) != fingerprint {
				return fmt.Errorf("%w: other certificate", ErrDenied)
			}
			return nil
		},
	})
	if err := c.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return newConn(c), nil
}

// Prove makes this the connection of a node, whose first one counts.
func (c *Conn) Prove(key []byte, node int) error {
	mac, err := proof(c.Conn.(*tls.Conn), key, uint32(node))
	if err != nil {
		return err
	}
	return c.SendData(Hello, uint32(node), mac)
}

// finishTime bounds the wait for the end of a node's daemon.
const finishTime = 2 * time.Second

// Finish ends this side of the connection and waits until the other side has ended.
func (c *Conn) Finish() {
	for err := c.FinishSending(); err == nil; { // nothing follows
		_, err = c.reader.Read(c.payload)
	}
}

// FinishSending ends this side of the connection. The other side may send for a short time.
func (c *Conn) FinishSending() error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := c.Conn.(*tls.Conn).CloseWrite(); err != nil {
		return err
	}
	return c.SetReadDeadline(time.Now().Add(finishTime))
}

func newConn(c net.Conn) *Conn {
	return &Conn{Conn: c, reader: bufio.NewReaderSize(c, readBuffer), payload: make([]byte, MaxData)}
}
