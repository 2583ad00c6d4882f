package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/version"
)

// world is a host with all parts, and a controller over real TLS with the answers of a test. It
// holds what tests break.
type world struct {
	greylagv1connect.UnimplementedClusterServiceHandler
	t        *testing.T
	dir      string
	ca       *pki.CA
	host     Host
	address  string
	server   *http.Server
	stopAuth func()
	status   *greylagv1.GetStatusResponse
	node     *greylagv1.Node
	leases   greylagv1.ListLeasesResponse
	refusal  error         // to calls about nodes
	clock    time.Duration // the controller's, ahead of the host's
}

func newWorld(t *testing.T) *world {
	dir, err := os.MkdirTemp("", "doctor") // short: it contains a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, dir: dir, node: &greylagv1.Node{Name: "n1", State: greylagv1.NodeState_NODE_STATE_IDLE, Cpus: 8}}
	if w.ca, err = pki.NewCA("lab-00000001", time.Now().Add(-100*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	must(t, w.ca.Save(w.path("ctl")))
	for role, name := range map[pki.Role]string{pki.RoleController: "ctl", pki.RoleAuth: "login", pki.RoleNode: "n1"} {
		must(t, w.ca.Issue(w.path(map[pki.Role]string{pki.RoleController: "ctl", pki.RoleAuth: "auth", pki.RoleNode: "node"}[role]), pki.Grant{Peer: pki.Peer{ClusterID: "lab-00000001", Role: role, Name: name}}, time.Now()))
	}
	must(t, os.WriteFile(w.path("ca.pem"), w.ca.Trust().PEM(), 0o644))
	w.serve()
	for _, daemon := range []string{"gctld", "gnoded", "gauthd"} {
		w.write("bin/"+daemon, "#!/bin/sh\n")
	}
	t.Setenv("PATH", w.path("bin")+":/usr/sbin:/usr/bin:/sbin:/bin") // without daemons that were built
	w.vouch()
	w.configure()
	w.status = &greylagv1.GetStatusResponse{
		Id: "ctl-1", Leader: "ctl-1", Version: version.Version, CommitIndex: 100_000,
		Members: []*greylagv1.Member{{Id: "ctl-1", Address: w.address, Voter: true, Leader: true}, {Id: "ctl-2", LastContact: durationpb.New(time.Millisecond), MatchIndex: 99_999}},
	}
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// scratch gives the node a scratch directory in a place of its own, since the test's is inside that of the node.
func (w *world) scratch(mode os.FileMode, more string) {
	dir := filepath.Join(w.t.TempDir(), "scratch")
	if err := errors.Join(os.Mkdir(dir, mode), os.Chmod(dir, mode)); err != nil {
		w.t.Fatal(err)
	}
	w.nodeFile(fmt.Sprintf("scratch_dir = %q\n", dir) + more)
}

// write replaces a file of the host; %s is the controller's address, %[2]s the host's
// folder.
func (w *world) write(name, text string) {
	must(w.t, os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
	must(w.t, os.WriteFile(w.path(name), fmt.Appendf(nil, text+"#%[1]s%[2]s\n", w.address, w.dir), 0o755))
}

func (w *world) configure() {
	w.t.Setenv(config.ClientEnv, w.path("client.toml"))
	w.write("client.toml", "controllers = [%[1]q]\nca_file = \"%[2]s/ca.pem\"\nauth_socket = \"%[2]s/auth.sock\"\n")
	w.write("gauthd.toml", "controllers = [%[1]q]\npki_dir = \"%[2]s/auth\"\nsocket = \"%[2]s/auth.sock\"\n")
	w.write("gctld.toml", "advertise = %[1]q\npki_dir = \"%[2]s/ctl\"\ndata_dir = \"%[2]s/data\"\n")
	w.nodeFile("runtime = \"process\"\n[[simulated_gpus]]\ncount = 1\ntype = \"h100\"\nmemory = \"80GiB\"\n")
	w.host = Host{Controller: w.path("gctld.toml"), Node: w.path("gnoded.toml"), Auth: w.path("gauthd.toml"), GPUs: w.path("gnvml"), Shim: w.path("gshim")}
}

func (w *world) nodeFile(more string) {
	w.write("gnoded.toml", "controllers = [%[1]q]\npki_dir = \"%[2]s/node\"\ndata_dir = \"%[2]s/data\"\nstate_dir = \"%[2]s/state\"\n"+more)
}

// serve is the controller: a real listener with the cluster's own TLS.
func (w *world) serve() {
	id, trust, err := pki.OpenIdentity(w.path("ctl"))
	must(w.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	w.address = listener.Addr().String()
	mux := http.NewServeMux()
	mux.Handle(greylagv1connect.NewClusterServiceHandler(w))
	w.server = &http.Server{ErrorLog: log.New(io.Discard, "", 0), TLSConfig: pki.ServerTLS(trust, id), Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Date", time.Now().Add(w.clock).UTC().Format(http.TimeFormat))
		mux.ServeHTTP(out, r)
	})}
	go w.server.ServeTLS(listener, "", "") // ends with Close
	w.t.Cleanup(func() { w.server.Close() })
}

func (w *world) GetStatus(context.Context, *greylagv1.GetStatusRequest) (*greylagv1.GetStatusResponse, error) {
	return w.status, nil
}

func (w *world) ListNodes(context.Context, *greylagv1.ListNodesRequest) (*greylagv1.ListNodesResponse, error) {
	if w.refusal != nil {
		return nil, w.refusal
	}
	if w.node == nil {
		return &greylagv1.ListNodesResponse{}, nil
	}
	return &greylagv1.ListNodesResponse{Nodes: []*greylagv1.Node{w.node}}, nil
}

// vouch is a real gauthd.
func (w *world) vouch() {
	id, _, err := pki.OpenIdentity(w.path("auth"))
	must(w.t, err)
	signer, err := auth.NewSigner(id)
	must(w.t, err)
	socket, err := auth.Listen(w.path("auth.sock"))
	must(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = auth.NewDaemon(signer, auth.NewNames(), client.NewForwarder(client.Seeds(), nil), slog.New(slog.DiscardHandler)).Serve(ctx, socket) // ends with ctx
	}()
	w.stopAuth = func() { stop(); <-done }
	w.t.Cleanup(w.stopAuth)
}

// ListLeases implements ClusterService.
func (w *world) ListLeases(context.Context, *greylagv1.ListLeasesRequest) (*greylagv1.ListLeasesResponse, error) {
	return &w.leases, nil
}
