// Package server answers the API: jobs, nodes, cluster and peers, over Connect, gRPC and JSON on
// one port.
//
// It decides who the caller is and what it may do, from the connection, the token and the policy;
// which controller answers, from the leadership; and what a caller sees. The state decides what a
// change does to the cluster, once the log has committed it: a handler converts a request to a
// command and a result to an answer, and nothing else. Reads are answered from an immutable view of
// the state and wait only for the log, never for a scheduling pass. The server never writes to the
// state except through the log, and never trusts what a request says about its sender.
package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server/certs"
	"github.com/greylag/greylag/internal/server/encoding"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/server/journals"
	"github.com/greylag/greylag/internal/server/limits"
	"github.com/greylag/greylag/internal/server/logbroker"
	"github.com/greylag/greylag/internal/server/reports"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/submitfilter"
	"github.com/greylag/greylag/internal/tunnel"
	"github.com/greylag/greylag/pkg/cluster"
)

// Leader is the part that only the leading controller has: a controller.Controller. The errors wrap
// those of package raftlog.
type Leader interface {
	// Propose commits a command and returns its answer and its index.
	Propose(ctx context.Context, c command.Command) (command.Result, uint64, error)
	// Leading returns a context that ends when this controller no longer leads,
	// and false when it does not lead now.
	Leading() (context.Context, bool)
	// RecordHeartbeat records that a node has sent a heartbeat.
	RecordHeartbeat(node string, epoch uint64)
	// Ran records for how long a node has had a task, by its own count since counting began; for
	// one that is over, perhaps since before that.
	Ran(node string, counting uint64, job cluster.JobID, attempt cluster.Attempt, ran time.Duration, over bool)
}

// Members is the membership of the log: a raftlog.Log.
type Members interface {
	Status() raftlog.Status
	DiskLow() bool
	NoVoterHasSpace() bool
	AddMember(ctx context.Context, id, addr string) error
	RemoveMember(ctx context.Context, id string) error
	// IsMember reports whether this controller belongs to the cluster.
	IsMember() bool
	// Identify returns the controller that answers at an address, and its certificate.
	Identify(addr string) (id string, leaf *x509.Certificate, err error)
	Transfer(ctx context.Context, id string) error
	Backup(ctx context.Context, w io.Writer, contents raftlog.Contents) (raftlog.BackupInfo, error)
}

// Archive holds finished jobs, and the scripts and environments of all jobs.
type Archive interface {
	reports.Archive
	Between(from uint64, limit int) ([]archive.Record, error)
	Blob(d cluster.Digest) ([]byte, bool, error)
	Blobs(after []byte, most int) ([]archive.Blob, error)
	Missing([]cluster.Digest) ([]cluster.Digest, error)
	Gaps() ([]archive.Gap, error)
}

// Peers are the other controllers.
type Peers interface {
	views.Peers
	certs.Peers
	Transport() http.RoundTripper
}

// Config is the configuration of a server. All fields but Complete, Missing, Absent, Limits, Web,
// Observer, Filter, Clock and Logger are required.
type Config struct {
	ID       string // of this controller in the log
	State    views.State
	Leader   Leader
	Log      views.Log
	Members  Members
	Archive  Archive
	Peers    Peers
	Trust    *pki.Trust
	Identity *pki.Identity
	CA       *pki.CA
	// Subscribe follows all changes, or with a name only those of the jobs on that
	// node and of the node itself.
	Subscribe func(node string) views.Subscription
	// Complete reports whether the archive here holds all history; while it does not, the leader
	// answers requests about jobs. nil: it always does.
	Complete func() bool
	// Missing returns why it does not hold all; "" if nothing is known to be missing. May be nil.
	Missing func() string
	// Absent reports whether no controller has a script or environment that a job needs. nil:
	// never.
	Absent func(cluster.Digest) bool
	// Save writes the rest of a backup next to the state, and returns how many contents of jobs are
	// missing here: controller.SaveContents.
	Save func(w io.Writer, view *state.View, history bool) (missing int, err error)
	// Raft takes over a controller's raft connection and returns when it is closed.
	Raft   func(net.Conn)
	Limits limits.Config
	Web    http.Handler // for paths that are not the API; nil: 404
	// Observer receives measurements of calls; nil: none does.
	Observer Observer
	Notifies bool // users are notified of their jobs (--mail-type)
	Rents    bool // it has a provider program that leases cloud nodes
	// Orphans returns how many instances in the cloud have no lease, as this controller last found as the leader; nil: none.
	Orphans func() int
	// Identify checks the identity documents of leased instances; nil if they need none.
	Identify func(ctx context.Context, instance, document string) error
	Filter   *submitfilter.Filter // runs before a job is proposed; nil: none
	Clock    func() time.Time
	Logger   *slog.Logger
}

// Server answers the API. Use New, then Serve or ServeHTTP.
type Server struct {
	cfg      Config
	log      *slog.Logger
	verifier *auth.Verifier
	errors   *connect.ErrorWriter
	mux      *http.ServeMux
	http     *http.Server
	limits   *limits.Limits
	logs     *logbroker.Broker
	views    *views.Source
	certs    *certs.Service
	journals *journals.Reader
	tunnels  *tunnel.Broker
	slots    checkpointSlots
	// explaining is held by the one explanation in progress: each may cost a pass.
	explaining chan struct{}
	guesses    expectedStarts
	watchCron  func(context.Context)
	retiring   sync.Mutex      // held while the votes of other members are checked and a member is retired
	closing    context.Context // ends when the server stops: streams end then
	stop       context.CancelFunc
}

const (
	// connBuffer, streamBuffer and frameSize bound the buffers of a connection, of one call in it,
	// and of a part that is sent at once, before a handler reads it.
	connBuffer, streamBuffer, frameSize = 256 << 10, 128 << 10, 16 << 10
	// headTime bounds how long the head of a request may take to arrive.
	headTime = 5 * time.Second
	// idleTime is how long a connection without requests is kept.
	idleTime = 2 * time.Minute
	// stopTime is the time that open calls get when the server stops.
	stopTime = 2 * time.Second
)

// New makes a server.
func New(cfg Config) *Server {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Observer == nil {
		cfg.Observer = unobserved{}
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, mux: http.NewServeMux(),
		errors: connect.NewErrorWriter(), limits: limits.New(cfg.Limits), logs: logbroker.New(), tunnels: tunnel.NewBroker(),
		views:      &views.Source{State: cfg.State, Log: cfg.Log, Peers: cfg.Peers, ID: cfg.ID},
		explaining: make(chan struct{}, 1),
	}
	s.journals = &journals.Reader{Views: s.views, Archive: cfg.Archive, Logger: cfg.Logger}
	s.certs = certs.New(certs.Service{
		Views: s.views, Leader: cfg.Leader, Members: cfg.Members, Peers: cfg.Peers,
		Trust: cfg.Trust, Identity: cfg.Identity, CA: cfg.CA, Clock: cfg.Clock, Logger: cfg.Logger, Identify: cfg.Identify,
	})
	s.verifier = auth.NewVerifier(cfg.Trust, s.certs.Revoked)
	s.closing, s.stop = context.WithCancel(context.Background())
	options := connect.WithHandlerOptions(
		connect.WithReadMaxBytes(limits.MaxBody),
		// Compression would cost more than the network does, and a small request could expand to a
		// large one.
		connect.WithCompression("gzip", nil, nil),
		connect.WithInterceptors(answers{s}),
		encoding.StrictJSON(),
	)
	list := &joblist.Service{Views: s.views, Archive: cfg.Archive, Subscribe: func() views.Subscription { return cfg.Subscribe("") }}
	jobs := &jobService{s, list}
	s.watchCron = jobs.watchCron
	path, connects := greylagv1connect.NewJobServiceHandler(jobs, options)
	s.mux.Handle(path, connects)
	s.mux.Handle(greylagv1connect.JobServiceSubmitJobsProcedure, encoding.FastUnary(jobs.SubmitJobs, connects, s.refuse))
	s.mux.Handle(greylagv1connect.NewNodeServiceHandler(&nodeService{s}, options))
	s.mux.Handle(greylagv1connect.NewClusterServiceHandler(&clusterService{s, s.certs, s.journals}, options))
	s.mux.Handle(greylagv1connect.NewAccountServiceHandler(&accountService{s}, options))
	s.mux.Handle(greylagv1connect.NewCreditServiceHandler(&creditService{s, s.journals}, options))
	s.mux.Handle(greylagv1connect.NewHistoryServiceHandler(list, options))
	s.mux.Handle(greylagv1connect.NewReportServiceHandler(&reports.Service{Views: s.views, Archive: cfg.Archive, Clock: cfg.Clock}, options))
	s.mux.Handle(greylagv1connect.NewPeerServiceHandler(&peerService{s, s.certs}, options))
	s.http = &http.Server{
		Handler: s, TLSConfig: pki.ServerTLS(cfg.Trust, cfg.Identity),
		ReadHeaderTimeout: min(headTime, s.limits.ReadTimeout()), ReadTimeout: s.limits.ReadTimeout(), IdleTimeout: idleTime, MaxHeaderBytes: limits.MaxHead,
		Protocols: protocols(), TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){
			pki.ALPNRaft: func(_ *http.Server, conn *tls.Conn, _ http.Handler) { cfg.Raft(conn) },
		},
		// This detects a reader whose host has failed.
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second, MaxConcurrentStreams: 256,
			// Bounds of what a connection may hold that no handler has read yet.
			MaxReceiveBufferPerConnection: connBuffer, MaxReceiveBufferPerStream: streamBuffer, MaxReadFrameSize: frameSize,
		},
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug), // callers without proof cause these
	}
	return s
}

func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	return p
}

// Serve answers on a listener until Close. The listener returns plain connections: the server adds
// TLS.
func (s *Server) Serve(l net.Listener) error {
	go s.certs.Watch(s.closing) // ends with Close
	go s.watchCron(s.closing)
	err := s.http.ServeTLS(l, "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close ends streams, gives other calls two seconds to end, and closes all
// connections that the raft log has not taken over.
func (s *Server) Close() error {
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if s.http.Shutdown(ctx) == nil {
		return nil
	}
	return s.http.Close()
}

// hintHeader and leaderHeader are read by clients.
const (
	hintHeader   = client.HintHeader
	leaderHeader = client.LeaderHeader
)
