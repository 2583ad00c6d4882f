package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/runtime/containerd/private"
)

// Cluster is a running cluster. Its methods may be called from many goroutines,
// but only one at a time may start, kill or cut the same process.
type Cluster struct {
	Dir  string // the folder of everything
	Work string // where Run works: every user may write there

	options     Options
	programs    string // folder
	gctld       string
	gnoded      string
	controllers []*Controller
	nodes       []*Node
	auth        *Process
	containerd  *private.Daemon // nil without containers
	network     *network        // nil without namespaces
	trust       *pki.Trust
	reaper      *reaper // nil when kept

	stop    sync.Once
	stopped error
}

// Controller is one gctld.
type Controller struct {
	*Process
	Name string
	Addr string // HOST:PORT of its API
	Data string // its data_dir
	dir  string
	api  api
}

// Node is one gnoded.
type Node struct {
	*Process
	Name      string
	Data      string // its data_dir
	Namespace string // in containerd; no other cluster on this machine has it
	dir       string
}

// Start starts a cluster and returns when every controller has a vote and every
// node is ready for jobs. When it fails, nothing is left.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	dir, err := options.makeDir()
	if err != nil {
		return nil, fmt.Errorf("cluster folder: %w", err)
	}
	c := &Cluster{Dir: dir, Work: filepath.Join(dir, "work"), options: options}
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("start cluster: %w\n%s", err, c.LogTails(2000))
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	begun := time.Now()
	for _, dir := range []string{c.Work, c.logs(), filepath.Join(c.Dir, "auth")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(c.Work, 0o1777); err != nil {
		return err
	}
	if !c.options.Keep {
		var err error
		if c.reaper, err = startReaper(c.Dir); err != nil {
			return err
		}
	}
	if err := c.findPrograms(ctx); err != nil {
		return err
	}
	steps := []func(context.Context) error{c.layOut, c.startContainerd, c.bootstrap, c.joinControllers, c.joinNodes, c.applyPolicy, c.awaitReady}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	c.log("%d controllers and %d nodes are up after %s in %s", len(c.controllers), len(c.nodes), time.Since(begun).Round(time.Millisecond), c.Dir)
	return nil
}

func (c *Cluster) log(format string, args ...any) {
	fmt.Fprintf(c.options.Log, "cluster: "+format+"\n", args...)
}

func (c *Cluster) logs() string { return filepath.Join(c.Dir, "log") }

func (c *Cluster) program(name string) string { return filepath.Join(c.programs, name) }

// startContainerd starts the containerd that all nodes share, each in a namespace of its own.
func (c *Cluster) startContainerd(context.Context) error {
	if c.options.Nodes == 0 || c.options.Runtime != "containerd" {
		return nil
	}
	var err error
	c.containerd, err = private.Start(containerdDir(c.Dir), private.Options{Tmpfs: c.options.Tmpfs})
	return err
}

func containerdDir(dir string) string { return filepath.Join(dir, "d") }

// Controller returns the i-th gctld, from 0.
func (c *Cluster) Controller(i int) *Controller { return c.controllers[i] }

// Controllers returns all of them.
func (c *Cluster) Controllers() []*Controller { return c.controllers }

// Node returns the i-th gnoded, from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Nodes returns all of them.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Auth returns gauthd.
func (c *Cluster) Auth() *Process { return c.auth }

// Containerd returns the shared containerd; nil when tasks are plain processes.
func (c *Cluster) Containerd() *private.Daemon { return c.containerd }

// Containerized reports whether tasks run in containers.
func (c *Cluster) Containerized() bool { return c.containerd != nil }

// ConfigFile returns the client.toml that commands of this cluster need in GREYLAG_CONFIG.
func (c *Cluster) ConfigFile() string { return filepath.Join(c.Dir, "client.toml") }

// Programs returns the folder of the running programs.
func (c *Cluster) Programs() string { return c.programs }

// Stop ends the cluster and every task, and removes all that it created: processes, mounts, control
// groups, network namespaces, the folder. Only the first call does anything.
func (c *Cluster) Stop() error {
	c.stop.Do(func() {
		c.stopped = clean(c.Dir)
		if c.reaper != nil {
			c.stopped = errors.Join(c.stopped, c.reaper.dismiss())
		}
	})
	return c.stopped
}

// LogTails returns the last n bytes of every program's log, for a message.
func (c *Cluster) LogTails(n int64) string {
	var all strings.Builder
	tail := func(p *Process) {
		if p != nil {
			fmt.Fprintf(&all, "--- %s:\n%s\n", p.name, p.LogTail(n))
		}
	}
	for _, ctl := range c.controllers {
		tail(ctl.Process)
	}
	for _, node := range c.nodes {
		tail(node.Process)
	}
	tail(c.auth)
	return all.String()
}

// usedPorts are those that freePorts has returned: their owner may be down.
var usedPorts sync.Map

// freePorts returns ports below the kernel's ephemeral range, so that no client takes one while its
// owner is down. It returns each port once.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		port := 20000 + rand.IntN(12000)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return nil, err
		}
		if _, used := usedPorts.LoadOrStore(port, true); !used {
			ports = append(ports, port)
		}
	}
	return nil, errors.New("no free port between 20000 and 32000")
}

// Until polls until the condition holds, fails, or ctx ends; the last error is then in the result.
func Until(ctx context.Context, what string, done func() (bool, error)) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		ok, err := done()
		if ok {
			return nil
		}
		if err != nil && (ctx.Err() == nil || last == nil) {
			last = err // the last state, not just that time was up
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(ctx.Err(), last))
		case <-ticker.C:
		}
	}
}
