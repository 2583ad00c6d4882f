package gctld

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/controller"
	"github.com/greylag/greylag/internal/daemonmain"
	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/metrics/controllers"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server"
	"github.com/greylag/greylag/internal/server/limits"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/submitfilter"
	"github.com/greylag/greylag/internal/version"
)

// Daemon is an open controller. It answers calls while Serve runs.
type Daemon struct {
	cfg      config.Controller
	log      *slog.Logger
	identity *pki.Identity
	trust    *pki.Trust
	ca       *pki.CA

	authorities rotation
	listener    net.Listener
	stream      *raftlog.TLSStream
	store       *storage
	loops       *controller.Controller
	peers       *client.Peers
	filler      *controller.Filler
	sweeper     *controller.Sweeper
	metrics     metrics.Registry
	observed    *controllers.Process
	server      *server.Server
}

// Open opens everything; no call is answered until Serve.
func Open(cfg config.Controller, log *slog.Logger) (*Daemon, error) {
	d := &Daemon{cfg: cfg, log: log, metrics: metrics.NewRegistry()}
	d.observed = controllers.NewProcess(d.metrics)
	var err error
	if d.identity, d.trust, err = pki.OpenIdentity(cfg.PKIDir); err != nil {
		return nil, err
	}
	if d.ca, err = pki.LoadCA(cfg.PKIDir, d.trust); err != nil {
		return nil, err
	}
	if d.listener, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", cfg.Listen, err)
	}
	d.stream = raftlog.NewTLSStream(d.listener.Addr(), pki.RaftTLS(d.trust, d.identity))
	if d.store, err = openStorage(cfg, d.trust.ClusterID(), d.stream, d.observed, log); err != nil {
		return nil, errors.Join(err, d.listener.Close())
	}
	d.assemble()
	return d, nil
}

// assemble creates the parts that use the storage.
func (d *Daemon) assemble() {
	d.loops = controller.New(controller.Config{
		Replica: d.store.replica, Log: d.store.log, Logger: d.log,
		ClusterID: d.trust.ClusterID(), Policy: firstPolicy(d.trust), Clock: d.store.clock.Now,
		MemberID: d.store.log.Status().ID, Host: d.identity.Peer().Name, Observer: d.observed, TraceID: d.traceID(), Fence: fenceBy(d.cfg.Fence),
		Cloud: d.cloud(), LaunchToken: d.launchToken, Addresses: d.addresses,
	})
	d.trust.SetRevoked(d.checkRevoked)
	d.peers = client.NewPeers(pki.ClientTLS(d.trust, d.identity))
	d.authorities = rotation{
		view: d.store.replica.View, trust: d.trust, ca: d.ca, dir: d.cfg.PKIDir, peers: d.peers, others: d.others, log: d.log,
	}
	d.filler = &controller.Filler{
		Replica: d.store.replica, Archive: d.store.archive, Peers: d.peers, Others: d.others, Logger: d.log,
	}
	d.sweeper = &controller.Sweeper{
		Replica: d.store.replica, Archive: d.store.archive, Logger: d.log,
		Keep: archive.Keep{Age: d.cfg.Archive.ScriptsKeep, Bytes: int64(d.cfg.Archive.ScriptsSize)},
	}
	limit := d.cfg.Limits
	d.server = server.New(server.Config{
		Limits: limits.Config{Rate: float64(limit.Requests), Burst: limit.Burst, Streams: limit.Streams, ReadTimeout: limit.ReadTimeout},
		ID:     d.store.log.Status().ID, State: d.store.replica, Leader: d.loops, Log: d.store.log,
		Members: d.store.log, Archive: d.store.archive, Peers: d.peers,
		Trust: d.trust, Identity: d.identity, CA: d.ca,
		Subscribe: d.subscribe, Complete: d.filler.Complete, Missing: d.filler.Missing, Absent: d.filler.Absent, Save: d.store.save, Raft: d.stream.Handle, Web: d.pages(), Observer: d.observed, Notifies: d.cfg.Mail.Enabled(), Filter: d.filter(), Rents: d.cfg.Burst.Program != "", Orphans: d.observed.OrphanCount, Identify: d.identify(), Clock: clock, Logger: d.log,
	})
}

// filter returns the submission filter of the site; nil without one.
func (d *Daemon) filter() *submitfilter.Filter {
	submit := d.cfg.Submit
	if submit.Filter == "" {
		return nil
	}
	return submitfilter.New(submitfilter.Config{Program: submit.Filter, User: submit.User, Deadline: submit.Deadline, Logger: d.log})
}

func (d *Daemon) subscribe(node string) views.Subscription {
	if node == "" {
		return d.store.replica.Subscribe()
	}
	return d.store.replica.SubscribeNode(node)
}

// others returns the addresses of the other members.
func (d *Daemon) others() []string {
	var list []string
	status := d.store.log.Status()
	for _, m := range status.Members {
		if m.ID != status.ID {
			list = append(list, m.Addr)
		}
	}
	return list
}

// Serve answers calls until ctx ends, then transfers leadership and closes. It returns an error
// when the controller stopped by itself.
func (d *Daemon) Serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){d.loops.Run, d.filler.Run, d.sweeper.Run, d.renew, d.recheck, d.joinMembers, d.follow, d.heap, d.watchdog, d.newTraces().run, d.newJobMail().run} {
		loops.Go(func() { loop(ctx) })
	}
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(d.listener) }()
	d.log.Info("serving", "controller", d.identity.Peer().Name, "cluster", d.trust.ClusterID(),
		"id", d.store.log.Status().ID, "listen", d.listener.Addr(), "version", version.Version)
	var fault error
	select {
	case <-ctx.Done():
	case fault = <-served:
		served <- nil
	case <-d.store.log.Done():
		fault = d.store.log.Err()
	}
	daemonmain.Notify(daemonmain.Stopping)
	d.handOver()
	err := d.server.Close()
	<-served
	stop()
	loops.Wait()
	d.peers.Close()
	err = errors.Join(fault, err, d.store.close())
	if err == nil {
		d.log.Info("stopped")
	}
	return err
}

// watchdog tells systemd that this controller is alive as long as its state can be read.
func (d *Daemon) watchdog(ctx context.Context) {
	daemonmain.Watchdog(ctx, func() { d.store.log.Status(); d.store.replica.View() })
}

// handOverTime bounds how long a stopping controller waits for the next leader.
const handOverTime = 5 * time.Second

// handOver transfers leadership to another member while the API still answers.
func (d *Daemon) handOver() {
	if !d.store.log.IsLeader() || len(d.others()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
	defer cancel()
	if err := d.store.log.Transfer(ctx, ""); err != nil {
		d.log.Warn("no member took over leadership; the others elect a leader", "err", err)
	}
}

// renew keeps this controller's certificate valid. It asks the leader, as every program does,
// so that the new certificate is recorded and a revoked certificate is not renewed.
func (d *Daemon) renew(ctx context.Context) {
	pki.Renew(ctx, d.cfg.PKIDir, d.identity, func(ctx context.Context, csr []byte) ([]byte, error) {
		return pki.RenewFrom(d.addresses(), d.trust, d.identity)(ctx, csr)
	}, pki.LogRenewals(d.log, d.identity))
}

// recheckTime is how often a controller checks for a rotation of the CA, and the open connections
// between members.
const recheckTime = time.Second

// recheck follows a rotation of the CA, and closes connections to members whose certificates were
// revoked or are of a CA that is no longer accepted.
func (d *Daemon) recheck(ctx context.Context) {
	ticker := time.NewTicker(recheckTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			d.authorities.follow(ctx)
			for _, err := range d.stream.Recheck(d.trust.CheckConnection) {
				d.log.Warn("connection to a member closed", "err", err)
			}
		}
	}
}

// storage is what a controller keeps on disk.
type storage struct {
	archive *archive.Archive
	replica *controller.Replica
	log     *raftlog.Log
	clock   *steady
}

func openStorage(cfg config.Controller, clusterID string, stream raftlog.Stream, observer raftlog.Observer, log *slog.Logger) (*storage, error) {
	s := &storage{clock: newSteady(clock)}
	err := pki.MakePrivate(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if s.archive, err = archive.Open(filepath.Join(cfg.DataDir, archiveFolder), archive.Options{}); err != nil {
		return nil, err
	}
	s.replica = controller.NewReplica(s.archive, log)
	options, err := logConfig(cfg, clusterID, stream, log)
	options.Clock, options.Retired, options.Observer = s.clock.Now, s.replica.MemberRetired, observer
	if err == nil {
		s.log, err = raftlog.Open(options, s.replica)
	}
	if err != nil {
		return nil, errors.Join(err, s.archive.Close())
	}
	return s, nil
}

// save writes the contents of a backup.
func (s *storage) save(w io.Writer, view *state.View, history bool) (int, error) {
	return controller.SaveContents(w, view, s.archive, history)
}

// close closes the log before what it writes to.
func (s *storage) close() error {
	return errors.Join(s.log.Close(), s.archive.Close())
}
