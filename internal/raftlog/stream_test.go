package raftlog

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// authority makes certificates for 127.0.0.1.
func authority(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "controller"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

// serveAPI is an HTTPS server that passes the members' connections to a stream.
func serveAPI(t *testing.T, base *tls.Config) *TLSStream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stream := NewTLSStream(l.Addr(), base)
	config := base.Clone()
	config.NextProtos = []string{ALPN, "http/1.1"}
	server := &http.Server{
		ErrorLog:  log.New(io.Discard, "", 0),
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "api") }),
		TLSConfig: config,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){
			ALPN: func(_ *http.Server, c *tls.Conn, _ http.Handler) { stream.Handle(c) },
		},
	}
	done := make(chan struct{})
	go func() { defer close(done); server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { server.Close(); <-done })
	return stream
}

func TestMembersShareAPortWithTheAPI(t *testing.T) {
	t.Parallel()
	base := authority(t)
	f := newFleet(t, nil)
	f.tweak = func(c *Config) {
		stream := serveAPI(t, base)
		c.Stream, c.Addr = stream, stream.Addr().String()
		steady(c)
	}
	defer f.close()
	f.grow(3)
	f.propose("over TLS")
	if got := f.same(); len(got) != 1 {
		t.Errorf("state %q", got)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: base}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + f.nodes[0].cfg.Addr)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	foreign := authority(t)
	if conn, err := NewTLSStream(nil, foreign).Dial(f.nodes[0].cfg.Addr, time.Second); err == nil {
		conn.Close()
		t.Error("a certificate of another authority was taken")
	}
}

func TestMembersOverTCP(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	f.tweak = func(c *Config) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.Stream, c.Addr = TCPStream{l}, l.Addr().String()
		steady(c)
	}
	defer f.close()
	f.grow(3)
	for i := range 20 {
		f.propose(fmt.Sprint(i))
	}
	f.leader().Close()
	f.propose("after")
	if got := f.same(); len(got) != 21 {
		t.Errorf("state %q", got)
	}
}

func TestNoiseOnThePortIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.tweak = func(c *Config) { c.Stream, c.Addr = TCPStream{l}, l.Addr().String() }
	defer f.close()
	f.grow(1)
	for _, noise := range []string{"GET / HTTP/1.1\r\n\r\n", "GLRF\x01", "GLRF\x01X\x04test\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "\x00\xff\xff\xff\xff\xff"} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte(noise))
		conn.(*net.TCPConn).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		var b bytes.Buffer
		if _, err := b.ReadFrom(conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: not closed", noise)
		}
		conn.Close()
	}
	f.propose("unimpressed")
}

func FuzzHandshake(f *testing.F) {
	f.Add(hello{use: useRaft, cluster: "c", from: "a", to: "b", incarnation: 7}.encode())
	f.Add(answer{verdict: wrongMember, id: "b", incarnation: 7}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHello(bytes.NewReader(b)); err == nil {
			if again, err := readHello(bytes.NewReader(h.encode())); err != nil || again != h {
				t.Fatalf("%+v became %+v, %v", h, again, err)
			}
		}
		if a, err := readAnswer(bytes.NewReader(b)); err == nil {
			if again, err := readAnswer(bytes.NewReader(a.encode())); err != nil || again != a {
				t.Fatalf("%+v became %+v, %v", a, again, err)
			}
		}
	})
}

func FuzzTarget(f *testing.F) {
	f.Add("a@host:1#7")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseTarget(s)
		if err != nil || checkID(p.id) != nil || checkAddr(p.addr) != nil {
			return
		}
		again, err := parseTarget(p.id + "@" + string(p.stored()))
		if err != nil || again != p {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
	})
}

// TestRecheckClosesConnectionsInBothDirections covers a member whose certificate is revoked while
// it is connected.
func TestRecheckClosesConnectionsInBothDirections(t *testing.T) {
	t.Parallel()
	base := authority(t)
	refuse := func(state tls.ConnectionState) error {
		if state.NegotiatedProtocol != ALPN || len(state.PeerCertificates) != 1 {
			t.Errorf("checked %q with %d certificates", state.NegotiatedProtocol, len(state.PeerCertificates))
		}
		return errors.New("revoked")
	}
	for name, rechecked := range map[string]func(dialed, accepted *TLSStream) *TLSStream{
		"by the member that dialed":   func(d, _ *TLSStream) *TLSStream { return d },
		"by the member that accepted": func(_, a *TLSStream) *TLSStream { return a },
	} {
		t.Run(name, func(t *testing.T) {
			dialing, accepting := serveAPI(t, base), serveAPI(t, base)
			here, err := dialing.Dial(accepting.Addr().String(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			there, err := accepting.Accept()
			if err != nil {
				t.Fatal(err)
			}
			stream := rechecked(dialing, accepting)
			if errs := stream.Recheck(func(tls.ConnectionState) error { return nil }); len(errs) != 0 {
				t.Fatal(errs)
			}
			if errs := stream.Recheck(refuse); len(errs) != 1 || !strings.Contains(errs[0].Error(), "revoked") {
				t.Fatal(errs)
			}
			for _, conn := range []net.Conn{here, there} {
				conn.SetDeadline(time.Now().Add(time.Minute))
				if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the connection stays open: %v", err)
				}
			}
			if errs := stream.Recheck(refuse); len(errs) != 0 {
				t.Errorf("a closed connection is still listed: %v", errs)
			}
		})
	}
}
