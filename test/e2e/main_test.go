// Package e2e tests whole clusters: real processes, real containers, real faults.
//
// Each test describes what users see during and after a fault, and package audit reports which of
// all answers do not hold. Tests of what jobs do share one cluster.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

func TestMain(m *testing.M) {
	probeIfAsked()
	cluster.ReapIfAsked()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-interrupted
		_ = running.stopAll() // the reapers remove the rest
		os.Exit(130)
	}()
	code := withPrograms(m.Run)
	if err := running.stopAll(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: a cluster left something:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// clustersAtOnce is how many tests run at once unless -parallel says otherwise. Most of their time they
// wait for timeouts.
const clustersAtOnce = "4"

// withPrograms builds the programs once for all tests, unless they exist.
func withPrograms(run func() int) int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(clustersAtOnce)
	}
	if os.Getenv("GREYLAG_BIN") != "" || testing.Short() {
		return run()
	}
	dir, err := os.MkdirTemp("", "greylag-bin-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = errors.Join(os.Chmod(dir, 0o755), cluster.Build(context.Background(), dir), os.Setenv("GREYLAG_BIN", dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: build the programs:", err)
		return 1
	}
	return run()
}

// open are the clusters that have not been stopped.
type open struct {
	mu       sync.Mutex
	clusters map[*cluster.Cluster]bool
}

var running = open{clusters: map[*cluster.Cluster]bool{}}

func (o *open) add(c *cluster.Cluster) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clusters[c] = true
}

func (o *open) stop(c *cluster.Cluster) error {
	o.mu.Lock()
	delete(o.clusters, c)
	o.mu.Unlock()
	return c.Stop()
}

func (o *open) stopAll() (failed error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.clusters {
		if err := c.Stop(); err != nil {
			failed = err
		}
	}
	return failed
}

// logTo sends a cluster's messages to a test's log.
type logTo struct{ testing.TB }

func (l logTo) Write(line []byte) (int, error) {
	l.Logf("%s", line[:max(0, len(line)-1)])
	return len(line), nil
}

// hang is how long a test waits for an event before it fails. It is no promise: a machine may be
// slow.
const hang = 5 * time.Minute

// limited returns a context that ends with the test's time.
func limited(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// needsRoot skips tests that need root.
func needsRoot(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("needs root: %s", what)
	}
}

// start starts a cluster for one test and stops it afterwards.
func start(t testing.TB, options cluster.Options) *cluster.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real cluster: not with -short")
	}
	options.Log = logTo{t}
	options.NodePrefix = fmt.Sprintf("e%dn", os.Getpid()) // of this run alone
	c, err := cluster.Start(limited(t, 2*hang), options)  // it may have to build gctld
	if err != nil {
		t.Fatal(err)
	}
	running.add(c)
	t.Cleanup(func() {
		if t.Failed() || os.Getenv("GREYLAG_E2E_LOGS") != "" {
			t.Logf("logs:\n%s", c.LogTails(6000))
		}
		if err := running.stop(c); err != nil {
			t.Error("stop:", err)
		}
	})
	return c
}
