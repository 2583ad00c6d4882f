package nodes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/greylag/greylag/internal/agent"
	"github.com/greylag/greylag/internal/metrics"
)

// Config says where a node shows its metrics and its health.
type Config struct {
	Socket   string // of /livez, /readyz and /metrics
	Textfile string // for node_exporter; "": none
	Listen   string // HOST:PORT of the same pages; "": none
}

const (
	// writeSpacing is the interval between two writes of the file.
	writeSpacing = 15 * time.Second
	// maxReportAge is the age of the last accepted report above which the node is not ready.
	maxReportAge = 30 * time.Second
	// headTime bounds how long the head of a request may take to arrive.
	headTime = 5 * time.Second
)

// Serve serves until ctx ends, and returns an error only if it cannot listen.
func (n *Node) Serve(ctx context.Context, cfg Config, log *slog.Logger) error {
	listeners, err := listen(cfg)
	if err != nil {
		return err
	}
	all := metrics.NewRegistry()
	all.MustRegister(n)
	mux := http.NewServeMux()
	metrics.Health(mux, n.checks)
	mux.Handle("GET /metrics", all.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headTime, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	for _, l := range listeners {
		go func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				log.Warn("health and metrics are not served", "address", l.Addr(), "err", err)
			}
		}()
	}
	n.writeAll(ctx, cfg.Textfile, log)
	return server.Close()
}

// listen opens the socket, and the address if there is one.
func listen(cfg Config) ([]net.Listener, error) {
	if err := os.Remove(cfg.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an earlier process
		return nil, err
	}
	socket, err := net.Listen("unix", cfg.Socket)
	if err != nil {
		return nil, fmt.Errorf("listen for health checks: %w", err)
	}
	if cfg.Listen == "" {
		return []net.Listener{socket}, nil
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("metrics.listen: %w", err), socket.Close())
	}
	return []net.Listener{socket, l}, nil
}

// checks returns the conditions under which the node takes work.
func (n *Node) checks() []metrics.Check {
	ctx, cancel := context.WithTimeout(context.Background(), observeTimeout)
	defer cancel()
	o, err := n.observe(ctx)
	if err != nil {
		return []metrics.Check{metrics.Failed("daemon", true, "it does not answer: %v", err)}
	}
	return checksOf(o, time.Now())
}

func checksOf(o agent.Observation, now time.Time) []metrics.Check {
	list := []metrics.Check{
		metrics.Failed("controllers", !o.Connected, "not connected"),
		metrics.Failed("report", o.Reported.IsZero() || now.Sub(o.Reported) > maxReportAge, "no report was accepted in the last %s", maxReportAge),
	}
	for _, source := range []string{"runtime", "gpus", "gpu events", "records"} {
		list = append(list, metrics.Failed(source, o.Faults[source] != "", "%s", o.Faults[source]))
	}
	return list
}

// writeAll writes the file until ctx ends, and removes it then, so that nothing outdated is read.
// Nothing is written while the directory does not exist: node_exporter is not installed.
func (n *Node) writeAll(ctx context.Context, path string, log *slog.Logger) {
	if path == "" {
		<-ctx.Done()
		return
	}
	registry := metrics.NewFileRegistry()
	registry.MustRegister(n)
	ticker := time.NewTicker(writeSpacing)
	defer ticker.Stop()
	failing := false
	for {
		err := registry.WriteFile(path)
		if _, gone := os.Stat(filepath.Dir(path)); err != nil && !failing && !errors.Is(gone, fs.ErrNotExist) {
			log.Warn("cannot write the metrics for node_exporter", "err", err, "retry_in", writeSpacing)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			_ = os.Remove(path) // it may not exist
			return
		case <-ticker.C:
		}
	}
}
