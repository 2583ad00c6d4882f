package client_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
)

// compute is a compute node with the socket of one task.
type compute struct {
	config  config.Client
	sockets *auth.JobSockets
	attempt auth.Attempt
}

// newCompute starts one that knows the controllers at far.
func newCompute(t *testing.T, ca *pki.CA, far ...string) *compute {
	t.Helper()
	dir := t.TempDir()
	must(t, ca.Issue(dir, pki.Grant{Peer: pki.Peer{ClusterID: "test", Role: pki.RoleNode, Name: "n1"}}, time.Now()))
	id, trust, err := pki.OpenIdentity(dir)
	must(t, err)
	n := &compute{attempt: auth.Attempt{Job: 12, Number: 1}}
	n.sockets = auth.NewJobSockets(filepath.Join(dir, "s"), client.NewJobForwarder(client.Seeds(far...), pki.ClientTLS(trust, id)), slog.New(slog.DiscardHandler))
	t.Cleanup(n.sockets.Stop)
	n.open(t)
	n.config.Timeout = time.Minute
	return n
}

func (n *compute) open(t *testing.T) {
	t.Helper()
	folder, err := n.sockets.Open(n.attempt, uint32(os.Getuid()))
	must(t, err)
	n.config.JobSocket = filepath.Join(folder, auth.SocketFile)
}

func (n *compute) dial(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.DialOnce(n.config)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// serveNodes serves a controller that requires a node's certificate and an attempt with each call.
func serveNodes(t *testing.T, ca *pki.CA, say func(int) error) *host {
	t.Helper()
	dir := t.TempDir()
	must(t, ca.Issue(dir, pki.Grant{Peer: pki.Peer{ClusterID: "test", Role: pki.RoleController, Name: "c1"}}, time.Now()))
	id, trust, err := pki.OpenIdentity(dir)
	must(t, err)
	h, mux := &host{say: say}, http.NewServeMux()
	mux.Handle(greylagv1connect.NewJobServiceHandler(h))
	s := &http.Server{TLSConfig: pki.ServerTLS(trust, id), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, ok := trust.PeerOf(r.TLS)
		asked := strings.HasSuffix(r.URL.Path, "/GetStatus") // asked by the node itself for the leader
		if !asked && (!ok || peer.Name != "n1" || r.Header.Get(auth.AttemptHeader) != "12.1" || r.Header.Get("Authorization") != "") {
			t.Errorf("%s came from %v with %v", r.URL.Path, peer, r.Header)
		}
		mux.ServeHTTP(w, r)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	h.addr = l.Addr().String()
	go func() { _ = s.ServeTLS(l, "", "") }()
	t.Cleanup(func() { s.Close() })
	return h
}

func newTestCA(t *testing.T) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA("test", time.Now())
	must(t, err)
	return ca
}

// TestInsideAJob checks that all calls go through the node, also large and repeated ones.
func TestInsideAJob(t *testing.T) {
	ca := newTestCA(t)
	h := serveNodes(t, ca, until(3, coded(connect.CodeUnavailable)))
	n := newCompute(t, ca, h.addr, "127.0.0.1:1")
	c := n.dial(t)
	id, err := submit(t.Context(), c)
	must(t, err)
	for _, seen := range h.seen {
		if seen != id {
			t.Errorf("request %s became %s", id, seen)
		}
	}
	_, err = c.Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{Jobs: []*greylagv1.JobSpec{{Script: make([]byte, 4<<20)}}})
	must(t, err)
	n.config.Direct = true
	if _, err := client.DialOnce(n.config); client.Hint(err) == "" {
		t.Errorf("a controller of the command's choice: %v", err)
	}
}

// TestInsideAJobWithoutControllers checks that commands report the same as on a login node, and as
// soon.
func TestInsideAJobWithoutControllers(t *testing.T) {
	n := newCompute(t, newTestCA(t), "127.0.0.1:1", "127.0.0.1:2")
	began := time.Now()
	_, err := n.dial(t).Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{})
	if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "no controller responds: 127.0.0.1:1 refuses connections; 127.0.0.1:2 refuses connections") || client.Hint(err) == "" {
		t.Errorf("%v, hint %q", err, client.Hint(err))
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("a list took %s to say so", took)
	}
	n.config.Timeout = 5 * time.Second
	c, repeats := n.dial(t), 0
	c.OnRetry(func(error, time.Duration, time.Duration) { repeats++ })
	if _, err := submit(t.Context(), c); connect.CodeOf(err) != connect.CodeUnavailable || repeats < 2 {
		t.Errorf("a submission was repeated %d times: %v", repeats, err)
	}
}

// TestInsideAJobWhileTheDaemonRestarts checks that a call waits for the next daemon.
func TestInsideAJobWhileTheDaemonRestarts(t *testing.T) {
	ca := newTestCA(t)
	n := newCompute(t, ca, serveNodes(t, ca, yes).addr)
	n.sockets.Stop()
	c := n.dial(t)
	c.OnRetry(func(error, time.Duration, time.Duration) { n.open(t) })
	_, err := submit(t.Context(), c)
	must(t, err)
	n.sockets.Close(n.attempt)
	n.config.Timeout = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = submit(ctx, n.dial(t))
	if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "gnoded on this node does not answer") || client.Hint(err) == "" {
		t.Errorf("%v, hint %q", err, client.Hint(err))
	}
}
