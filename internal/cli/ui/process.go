// Package ui is the shared code of the users' commands: how a command starts, how it reaches the cluster,
// how it prints tables, JSON, errors and hints, and its exit status.
//
// The answer goes to standard output, everything else to standard error. A command never decides
// whether something is allowed or possible, keeps nothing between two runs, and never sends text of
// other users to a terminal without [Printable].
package ui

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/tunnel"
)

// Cluster is how commands call the controllers. Its implementation repeats failed calls, also on
// other controllers.
type Cluster interface {
	Jobs() greylagv1connect.JobServiceClient
	Cluster() greylagv1connect.ClusterServiceClient
	Accounts() greylagv1connect.AccountServiceClient
	Reports() greylagv1connect.ReportServiceClient
	History() greylagv1connect.HistoryServiceClient
	Credits() greylagv1connect.CreditServiceClient
	// Watch calls receive for the current state of jobs and then for each change.
	Watch(ctx context.Context, request *greylagv1.WatchJobsRequest, receive func(*greylagv1.WatchJobsResponse) error) error
	// OnRetry is called for each repeated call, with the time spent on it and the time left.
	OnRetry(func(err error, tried, left time.Duration))
	// Tunnels opens tunnel connections through the controllers.
	Tunnels() tunnel.Controllers
	Close()
}

// Process is a command as the system started it.
type Process struct {
	Program string   // for messages
	Args    []string // after the program's name
	Environ []string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Now     func() time.Time
	Dial    func(config.Client) (Cluster, error)
	// Request is the ID of an earlier submission to be repeated; "" for none.
	Request string
}

// ThisProcess returns the running one.
func ThisProcess(program string, dial func(config.Client) (Cluster, error)) *Process {
	return &Process{
		Program: program, Args: os.Args[1:], Environ: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Now: time.Now, Dial: dial,
	}
}

// Variable returns the value of an environment variable, "" when it is unset.
func (p *Process) Variable(name string) string {
	for _, pair := range p.Environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// TerminalWidth returns a terminal's width; 0 when the stream is no terminal.
func TerminalWidth(stream any) int {
	f, ok := stream.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 { // a terminal that does not report it
		return defaultWidth
	}
	return int(size.Col)
}

// ToTerminal reports whether the output goes to a terminal.
func (p *Process) ToTerminal() bool { return TerminalWidth(p.Stdout) > 0 }

// The width of tables: without a terminal, and the bounds of a terminal's width.
const (
	defaultWidth = 80
	LeastWidth   = 40
	MostWidth    = 400
)

// Width returns how many columns a table may take, and whether its last column must be truncated to
// fit: only a terminal has an edge.
func (p *Process) Width() (columns int, edge bool) {
	if n, err := strconv.Atoi(p.Variable("COLUMNS")); err == nil && n > 0 {
		return min(max(n, LeastWidth), MostWidth), true
	}
	if n := TerminalWidth(p.Stdout); n > 0 {
		return min(max(n, LeastWidth), MostWidth), true
	}
	return defaultWidth, false
}

// UseColour reports whether the output may be coloured.
func (p *Process) UseColour(cfg config.Client) bool {
	switch cfg.Color {
	case "always":
		return true
	case "never":
		return false
	}
	return p.Variable("NO_COLOR") == "" && p.Variable("TERM") != "dumb" && TerminalWidth(p.Stdout) > 0
}

// Client returns the configuration of commands, and a client of its cluster. The caller closes the
// client.
func (p *Process) Client() (config.Client, Cluster, error) { return p.ClientOf("") }

// ClientOf is Client that asks only one controller, HOST or HOST:PORT; "" is any.
func (p *Process) ClientOf(controller string) (config.Client, Cluster, error) {
	cfg, err := config.LoadClient("")
	if err != nil {
		if named := p.Variable(config.ClientEnv); named != "" && errors.Is(err, fs.ErrNotExist) {
			err = &UsageError{err.Error(), config.ClientEnv + " names that file: set it to an existing one, or unset it"}
		}
		return cfg, nil, errors.Join(errConfig, err)
	}
	if controller != "" {
		if err := cfg.AskOnly(controller); err != nil {
			return cfg, nil, &UsageError{"--controller: " + err.Error(), "gctl cluster status lists their addresses"}
		}
	}
	cluster, err := p.Dial(cfg)
	if err == nil {
		p.TellRetries(cluster)
	}
	return cfg, cluster, err
}

// quiet is how long a call is tried before a message: electing a leader seldom takes longer.
const quiet = 2 * time.Second

// TellRetries prints once that the answer takes longer, until when the command waits, and why.
func (p *Process) TellRetries(c Cluster) {
	var once sync.Once
	c.OnRetry(func(err error, tried, left time.Duration) {
		if tried >= quiet || p.Request != "" { // tried for as long before
			once.Do(func() { p.Note("still trying, until %s: %s", p.Now().Add(left).Format(time.TimeOnly), err) })
		}
	})
}

// errConfig marks an invalid client file among joined errors; it is not printed.
var errConfig = errors.New("invalid configuration")
