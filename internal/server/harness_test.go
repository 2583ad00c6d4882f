package server_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/controller"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server"
	"github.com/greylag/greylag/internal/server/limits"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/submitfilter"
	"github.com/greylag/greylag/pkg/cluster"
)

// The users of the tests, known by their roles.
var (
	root = cluster.Identity{User: "root"}
	olga = cluster.Identity{User: "olga", UID: 1000, GID: 1000} // operator
	ann  = cluster.Identity{User: "ann", UID: 1001, GID: 1001}
	bob  = cluster.Identity{User: "bob", UID: 1002, GID: 1002}
)

// world is a cluster of real controllers in this process: real TLS, log, state,
// archive and loops.
type world struct {
	t      testing.TB
	ca     *pki.CA
	dir    string
	signer *auth.Signer
	all    []*controllerHost
	trusts []*pki.Trust // of the identities
}

// controllerHost is one controller.
type controllerHost struct {
	addr   string
	log    *raftlog.Log
	store  *archive.Archive
	state  func() *state.View
	server *server.Server
	loops  *controller.Controller
	peers  *client.Peers
	wake   func() // starts the loops, if options leave them stopped
	stop   func()
}

type options struct {
	controllers int
	limits      limits.Config
	policy      func(*cluster.Policy)
	complete    func() bool          // the archives hold all history; nil: they do
	clock       func() time.Time     // of the servers; nil: the present
	filter      *submitfilter.Filter // runs before jobs are proposed; nil: none
	identify    func(ctx context.Context, instance, document string) error
	asleep      bool // the loops do not run: the cluster gets neither name nor policy
}

func newWorld(t testing.TB, o options) *world {
	t.Helper()
	if p, ok := t.(*testing.T); ok {
		p.Parallel()
	}
	ca, err := pki.NewCA("test", time.Now())
	must(t, err)
	w := &world{t: t, ca: ca, dir: t.TempDir()}
	w.signer, err = auth.NewSigner(w.identity(pki.RoleAuth, "login1"))
	must(t, err)
	for i := range max(o.controllers, 1) {
		w.all = append(w.all, w.start(i, o))
	}
	must(t, w.all[0].log.Bootstrap())
	w.until("a leader", func() bool { return w.leader() != nil })
	if o.asleep {
		return w
	}
	for _, c := range w.all[1:] {
		w.until("a vote for another controller", func() bool {
			_, err := w.as(root, w.all[0]).Cluster().AddMember(t.Context(), &greylagv1.AddMemberRequest{Id: c.log.Status().ID, Address: c.addr})
			if err != nil && connect.CodeOf(err) != connect.CodeUnavailable {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	w.until("a leader", func() bool { return w.leader() != nil })
	w.until("the cluster's name", func() bool {
		status, err := w.as(root).Cluster().GetStatus(context.Background(), &greylagv1.GetStatusRequest{})
		return err == nil && status.GetAppliedIndex() > 0 && status.GetCluster() == "testing"
	})
	return w
}

// quiet is the log output of a test.
func quiet() *slog.Logger {
	if os.Getenv("GREYLAG_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

func (w *world) start(i int, o options) *controllerHost {
	w.t.Helper()
	name := fmt.Sprintf("c%d", i+1)
	id := w.identity(pki.RoleController, name)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	c := &controllerHost{addr: listener.Addr().String(), peers: client.NewPeers(pki.ClientTLS(w.ca.Trust(), id))}
	stream := raftlog.NewTLSStream(listener.Addr(), pki.RaftTLS(w.ca.Trust(), id))
	c.store, err = archive.Open(filepath.Join(w.dir, name, "archive"), archive.Options{})
	must(w.t, err)
	replica := controller.NewReplica(c.store, quiet())
	profile := raftlog.FastLAN()
	if o.controllers > 1 { // no leader may step down only because it waits for a processor
		profile = raftlog.Profile{Heartbeat: 3 * time.Second, Election: 3 * time.Second, Lease: 3 * time.Second}
	}
	c.log, err = raftlog.Open(raftlog.Config{
		Addr: c.addr, ClusterID: "test", Dir: filepath.Join(w.dir, name, "raft"), Stream: stream, Logger: quiet(), ReserveBytes: -1,
		Retired: replica.MemberRetired, Profile: profile, StallLimit: time.Minute, Fatal: func(code int, reason string) { panic(fmt.Sprint(code, reason)) },
	}, replica)
	must(w.t, err)
	policy := cluster.DefaultPolicy()
	policy.Cluster, policy.Operators = "testing", []string{"olga"}
	if o.policy != nil {
		o.policy(&policy)
	}
	loops := controller.New(controller.Config{Replica: replica, Log: c.log, Logger: quiet(), ClusterID: "test", Policy: policy, MemberID: c.log.Status().ID, Host: name})
	c.loops, c.state = loops, replica.View
	c.server = server.New(server.Config{
		ID: c.log.Status().ID, State: replica, Leader: loops, Log: c.log, Members: c.log, Archive: c.store, Peers: c.peers,
		Trust: w.ca.Trust(), Identity: id, CA: w.ca, Raft: stream.Handle, Limits: o.limits, Logger: quiet(), Complete: o.complete, Clock: o.clock, Filter: o.filter, Identify: o.identify,
		Absent: func(cluster.Digest) bool { return true },
		Save: func(w io.Writer, v *state.View, history bool) (int, error) {
			return controller.SaveContents(w, v, c.store, history)
		},
		Subscribe: func(node string) views.Subscription {
			if node == "" {
				return replica.Subscribe()
			}
			return replica.SubscribeNode(node)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	c.wake = func() { running.Go(func() { loops.Run(ctx) }) }
	if !o.asleep {
		c.wake()
	}
	running.Go(func() { _ = c.server.Serve(listener) })
	c.stop = sync.OnceFunc(func() {
		stream.Close()
		_ = c.log.Close()
		_ = c.server.Close()
		cancel()
		running.Wait()
		c.peers.Close()
		_ = c.store.Close()
	})
	w.t.Cleanup(c.stop)
	return c
}

// identity makes a certificate.
func (w *world) identity(role pki.Role, name string) *pki.Identity {
	w.t.Helper()
	return w.identityIssued(role, name, time.Now())
}

// identityIssued returns an identity whose certificate has that issue time, in whole seconds.
func (w *world) identityIssued(role pki.Role, name string, at time.Time) *pki.Identity {
	w.t.Helper()
	dir := w.pkiDir(role, name)
	must(w.t, w.ca.Issue(dir, pki.Grant{Peer: pki.Peer{ClusterID: "test", Role: role, Name: name}, Hosts: hosts(role)}, at))
	id, trust, err := pki.OpenIdentity(dir)
	must(w.t, err)
	w.trusts = append(w.trusts, trust)
	return id
}

// pkiDir is the folder of the identity of a program.
func (w *world) pkiDir(role pki.Role, name string) string {
	return filepath.Join(w.dir, "pki-"+string(role)+"-"+name)
}

func hosts(role pki.Role) []string {
	if role == pki.RoleController {
		return []string{"127.0.0.1", "localhost"}
	}
	return nil
}

// tokens is a gauthd for one user. Its token lasts longer than any test.
type tokens struct{ token string }

func (s tokens) Token(context.Context) (string, error) { return s.token, nil }

func (w *world) tokens(user cluster.Identity) tokens {
	w.t.Helper()
	token, err := w.signer.Token(user, time.Now())
	must(w.t, err)
	return tokens{token}
}

// as returns a client of a user with the given controllers, or all.
func (w *world) as(user cluster.Identity, at ...*controllerHost) *client.Client {
	return w.client(client.Config{TLS: pki.ClientTLS(w.ca.Trust(), nil), Tokens: w.tokens(user)}, at)
}

// program returns a client with a certificate.
func (w *world) program(role pki.Role, name string, at ...*controllerHost) *client.Client {
	return w.client(client.Config{TLS: pki.ClientTLS(w.ca.Trust(), w.identity(role, name))}, at)
}

func (w *world) client(cfg client.Config, at []*controllerHost) *client.Client {
	if len(at) == 0 {
		at = w.all
	}
	for _, c := range at {
		cfg.Controllers = append(cfg.Controllers, c.addr)
	}
	c := client.New(cfg)
	w.t.Cleanup(c.Close)
	return c
}

// leader returns the controller that leads, nil for none.
func (w *world) leader() *controllerHost {
	for _, c := range w.all {
		if c.log.IsLeader() {
			return c
		}
	}
	return nil
}

// follower returns one that does not.
func (w *world) follower() *controllerHost {
	for _, c := range w.all {
		if !c.log.IsLeader() {
			return c
		}
	}
	return nil
}

// until waits until a condition holds.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatal("timed out waiting for " + what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// script is a job that does nothing.
const script = "#!/bin/sh\ntrue\n"

// job is a specification of it.
func job(name string) *greylagv1.JobSpec {
	return &greylagv1.JobSpec{Name: name, Script: []byte(script), WorkDir: "/", Environment: []string{"HOME=/root"}}
}

// submit submits one job and returns its ID.
func (w *world) submit(c *client.Client, spec *greylagv1.JobSpec) uint64 {
	w.t.Helper()
	answer, err := c.Jobs().SubmitJobs(w.t.Context(), &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{spec}})
	must(w.t, err)
	return answer.GetJobs()[0].GetId()
}
