package pki

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
)

// handshake runs one handshake and returns what the server saw and the errors of both sides.
func handshake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	a, b := connection(t)
	defer a.Close()
	defer b.Close()
	s, c := tls.Server(a, server), tls.Client(b, client)
	deadline := time.Now().Add(10 * time.Second)
	_ = a.SetDeadline(deadline)
	_ = b.SetDeadline(deadline)
	sent := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x")) // the client's certificate was accepted: answer
		} else {
			a.Close()
		}
		sent <- err
	}()
	_, err := c.Read(make([]byte, 1))
	if err != nil {
		b.Close()
	}
	err = errors.Join(<-sent, err)
	return s.ConnectionState(), err
}

// connection returns both ends of a TCP connection: unlike a pipe it buffers.
func connection(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	b, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestWhoMaySpeakToWhom(t *testing.T) {
	ca, foreign := testCA(t, "prod"), testCA(t, "prod")
	ctl, _ := testIdentity(t, ca, RoleController, "ctl1")
	ctl2, _ := testIdentity(t, ca, RoleController, "ctl2")
	node, _ := testIdentity(t, ca, RoleNode, "n1")
	alien, _ := testIdentity(t, foreign, RoleNode, "n1")
	alienCtl, _ := testIdentity(t, foreign, RoleController, "ctl1")
	trust := ca.Trust()
	server := ServerTLS(trust, ctl)
	old := ClientTLS(trust, nil)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for name, c := range map[string]struct {
		server, client *tls.Config
		peer, alpn     string
		refused        string
	}{
		"user":                     {server, ClientTLS(trust, nil), "", "h2", ""},
		"node":                     {server, ClientTLS(trust, node), "greylag://prod/node/n1", "h2", ""},
		"raft":                     {server, RaftTLS(trust, ctl2), "greylag://prod/controller/ctl2", ALPNRaft, ""},
		"raft by a node":           {server, RaftTLS(trust, node), "", "", "raft is for controllers"},
		"raft by a user":           {server, RaftTLS(trust, nil), "", "", "raft is for controllers"},
		"another cluster's node":   {server, ClientTLS(trust, alien), "", "", "unknown authority"},
		"another cluster's server": {ServerTLS(foreign.Trust(), alienCtl), ClientTLS(trust, nil), "", "", "not trusted"},
		"a node as server":         {ServerTLS(trust, node), ClientTLS(trust, nil), "", "", "wrong role"},
		"TLS 1.2":                  {server, old, "", "", "version"},
		"pinned":                   {server, PinnedTLS(trust.Fingerprint()), "", "h2", ""},
		"pinned to another":        {server, PinnedTLS(foreign.Trust().Fingerprint()), "", "", "join token"},
		"pinned, a node serves":    {ServerTLS(trust, node), PinnedTLS(trust.Fingerprint()), "", "", "wrong role"},
	} {
		t.Run(name, func(t *testing.T) {
			state, err := handshake(t, c.server, c.client)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("got %v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			peer, known := trust.PeerOf(&state)
			if known != (c.peer != "") || known && peer.String() != c.peer || state.NegotiatedProtocol != c.alpn {
				t.Errorf("peer %v %v, protocol %s", peer, known, state.NegotiatedProtocol)
			}
		})
	}
}

func TestResumedConnectionsAreKnownToo(t *testing.T) {
	ca := testCA(t, "prod")
	ctl, _ := testIdentity(t, ca, RoleController, "ctl1")
	node, _ := testIdentity(t, ca, RoleNode, "n1")
	server, client := ServerTLS(ca.Trust(), ctl), ClientTLS(ca.Trust(), node)
	client.ServerName, client.ClientSessionCache = "ctl1", tls.NewLRUClientSessionCache(1) // of another program; tickets are stored by name
	for _, resumed := range []bool{false, true} {
		state, err := handshake(t, server, client)
		if err != nil || state.DidResume != resumed {
			t.Fatalf("resumed %v, %v, want %v", state.DidResume, err, resumed)
		}
		if peer, ok := ca.Trust().PeerOf(&state); !ok || peer != node.Peer() {
			t.Errorf("resumed %v: %v, %v", resumed, peer, ok)
		}
	}
	raft := RaftTLS(ca.Trust(), node)
	raft.ServerName = "ctl1"
	raft.ClientSessionCache = client.ClientSessionCache // as if a node offered the ticket of its API calls
	if _, err := handshake(t, server, raft); err == nil {
		t.Error("a node resumed its way to raft")
	}
}

func TestJoinByFingerprintAlone(t *testing.T) {
	ca := testCA(t, "prod")
	ctl, _ := testIdentity(t, ca, RoleController, "ctl1")
	pin := ca.Trust().Fingerprint()
	if _, err := handshake(t, ServerTLS(ca.Trust(), ctl), PinnedTLS(pin)); err != nil {
		t.Fatal(err)
	}
	if _, err := PinnedTrust(testCA(t, "prod").Trust().DERs(), pin); !errors.Is(err, ErrUntrusted) {
		t.Errorf("another CA in the answer: %v", err)
	}
	trust, err := PinnedTrust(ca.Trust().DERs(), pin)
	if err != nil || trust.Fingerprint() != pin || trust.ClusterID() != "prod" {
		t.Fatalf("%v, %v", trust, err)
	}
}

func TestIdentityFollowsItsFile(t *testing.T) {
	ca := testCA(t, "prod")
	id, dir := testIdentity(t, ca, RoleController, "ctl1")
	first := id.Certificate().Leaf.SerialNumber
	clock := time.Now()
	id.now = func() time.Time { return clock }
	if err := os.WriteFile(filepath.Join(dir, IdentityFile), []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := id.Check(); err == nil {
		t.Error("a broken file was not reported")
	}
	clock = clock.Add(2 * recheck)
	if id.Certificate().Leaf.SerialNumber.Cmp(first) != 0 {
		t.Error("a broken file replaced the pair in use")
	}
	if err := ca.Issue(dir, Grant{Peer: id.Peer()}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if id.Certificate().Leaf.SerialNumber.Cmp(first) != 0 {
		t.Error("read the file again within a second")
	}
	clock = clock.Add(2 * recheck)
	if id.Certificate().Leaf.SerialNumber.Cmp(first) == 0 {
		t.Error("the new pair is not in use")
	}
}

// serve answers HTTPS on a free port until the test ends.
func serve(t *testing.T, h http.Handler, config *tls.Config) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(listener, "", "")
	}()
	t.Cleanup(func() { server.Close(); <-done })
	return listener.Addr().String()
}

// renewer is the generated API with the one call that is tested here.
type renewer struct {
	greylagv1connect.UnimplementedClusterServiceHandler
	ca *CA
}

type peerKey struct{}

func (r renewer) RenewCertificate(ctx context.Context, request *greylagv1.RenewCertificateRequest) (*greylagv1.RenewCertificateResponse, error) {
	peer, ok := ctx.Value(peerKey{}).(Peer)
	if !ok || peer.Name == "n9" {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("node n9 was removed from the cluster"))
	}
	cert, err := r.ca.Sign(request.Csr, Grant{Peer: peer}, time.Now())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	return &greylagv1.RenewCertificateResponse{Certificate: cert}, nil
}

func TestRenewThroughTheAPI(t *testing.T) {
	ca := testCA(t, "prod")
	ctl, _ := testIdentity(t, ca, RoleController, "ctl1")
	path, handler := greylagv1connect.NewClusterServiceHandler(renewer{ca: ca})
	if !strings.HasPrefix(renewPath, path) {
		t.Fatalf("the API is at %s, not %s", path, renewPath)
	}
	addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if peer, ok := ca.Trust().PeerOf(r.TLS); ok {
			r = r.WithContext(context.WithValue(r.Context(), peerKey{}, peer))
		}
		handler.ServeHTTP(w, r)
	}), ServerTLS(ca.Trust(), ctl))
	addrs := []string{"127.0.0.1:1", addr}
	for _, role := range []Role{RoleNode, RoleAuth} {
		id, dir := testIdentity(t, ca, role, "n1")
		before := id.Certificate().Leaf.SerialNumber
		if err := RenewNow(t.Context(), dir, id, RenewFrom(addrs, ca.Trust(), id)); err != nil {
			t.Fatal(err)
		}
		if id.Certificate().Leaf.SerialNumber.Cmp(before) == 0 || id.Peer().Role != role {
			t.Errorf("%s was not renewed", role)
		}
	}
	gone, dir := testIdentity(t, ca, RoleNode, "n9")
	err := RenewNow(t.Context(), dir, gone, RenewFrom(addrs, ca.Trust(), gone))
	if err == nil || !strings.Contains(err.Error(), "n9 was removed") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("removed node: %v", err)
	}
}

// TestRenewLoop simulates two months with the controllers away for the first attempts.
func TestRenewLoop(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ca := testCA(t, "prod")
		if err := ca.Issue(dir, Grant{Peer: Peer{"prod", RoleNode, "n1"}}, time.Now()); err != nil {
			t.Fatal(err)
		}
		id, _, err := OpenIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		var asked, renewed atomic.Int32
		ask := func(_ context.Context, csr []byte) ([]byte, error) {
			if asked.Add(1) <= 5 {
				return nil, fmt.Errorf("connection refused")
			}
			return ca.Sign(csr, Grant{Peer: id.Peer()}, time.Now())
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Renew(ctx, dir, id, ask, func(err error) {
				if err == nil {
					renewed.Add(1)
				}
			})
		}()
		time.Sleep(19 * 24 * time.Hour)
		synctest.Wait()
		if n := asked.Load(); n != 0 {
			t.Errorf("asked %d times before two thirds", n)
		}
		time.Sleep(60 * 24 * time.Hour)
		synctest.Wait()
		cancel()
		<-done
		if asked.Load() != 8 || renewed.Load() != 3 || time.Until(id.Expires()) < 9*24*time.Hour {
			t.Errorf("asked %d times, renewed %d, left %v", asked.Load(), renewed.Load(), time.Until(id.Expires()))
		}
	})
}

func TestRenewRefusesAnotherPeer(t *testing.T) {
	ca := testCA(t, "prod")
	id, dir := testIdentity(t, ca, RoleNode, "n1")
	for _, p := range []Peer{{"prod", RoleNode, "n2"}, {"prod", RoleController, "n1"}} {
		err := RenewNow(t.Context(), dir, id, func(_ context.Context, csr []byte) ([]byte, error) {
			return ca.Sign(csr, Grant{Peer: p}, time.Now())
		})
		if !errors.Is(err, ErrUntrusted) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func BenchmarkHandshake(b *testing.B) {
	ca := testCA(b, "prod")
	ctl, _ := testIdentity(b, ca, RoleController, "ctl1")
	node, _ := testIdentity(b, ca, RoleNode, "n1")
	server, client := ServerTLS(ca.Trust(), ctl), ClientTLS(ca.Trust(), node)
	client.ClientSessionCache = nil
	for b.Loop() {
		x, y := net.Pipe()
		go func() { _ = tls.Server(x, server).Handshake() }()
		if err := tls.Client(y, client).Handshake(); err != nil {
			b.Fatal(err)
		}
		x.Close()
		y.Close()
	}
}

func BenchmarkVerify(b *testing.B) {
	ca := testCA(b, "prod")
	node, _ := testIdentity(b, ca, RoleNode, "n1")
	leaf := node.Certificate().Leaf
	now := time.Now()
	for b.Loop() {
		if _, err := ca.Trust().Verify(leaf, now); err != nil {
			b.Fatal(err)
		}
	}
}

func TestRevokedControllersSpeakNoRaft(t *testing.T) {
	ca := testCA(t, "prod")
	ctl, _ := testIdentity(t, ca, RoleController, "ctl1")
	gone, _ := testIdentity(t, ca, RoleController, "ctl2")
	checking, err := ParseTrust(ca.Trust().PEM())
	if err != nil {
		t.Fatal(err)
	}
	checking.SetRevoked(func(peer Peer, issued time.Time) error {
		if peer == gone.Peer() && !issued.After(Issued(gone.Certificate().Leaf)) {
			return fmt.Errorf("%w: %s", ErrRevoked, peer)
		}
		return nil
	})
	for name, c := range map[string]struct {
		server, client *tls.Config
		refused        bool
	}{
		"it dials":                     {ServerTLS(checking, ctl), RaftTLS(checking, gone), true},
		"it is dialed":                 {ServerTLS(ca.Trust(), gone), RaftTLS(checking, ctl), true},
		"it is dialed for a call":      {ServerTLS(ca.Trust(), gone), ClientTLS(checking, ctl), true},
		"another dials":                {ServerTLS(checking, ctl), RaftTLS(checking, ctl), false},
		"it calls, to be answered why": {ServerTLS(checking, ctl), ClientTLS(ca.Trust(), gone), false},
	} {
		if _, err := handshake(t, c.server, c.client); (err != nil) != c.refused || c.refused && !strings.Contains(err.Error(), "revoked") {
			t.Errorf("%s: %v", name, err)
		}
	}
	state, err := handshake(t, ServerTLS(ca.Trust(), ctl), RaftTLS(ca.Trust(), gone))
	if err != nil {
		t.Fatal(err)
	}
	if err := checking.CheckConnection(state); !errors.Is(err, ErrRevoked) {
		t.Errorf("a connection that was open: %v", err)
	}
}
