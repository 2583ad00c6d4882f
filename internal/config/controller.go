package config

import (
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// ControllerPath is the standard path of gctld's file.
const ControllerPath = "/etc/greylag/gctld.toml"

// Controller is gctld's file. The other controllers are not in it, but in Raft's membership.
type Controller struct {
	Name      string `toml:"name"`      // default: the host's name up to the first dot
	Listen    string `toml:"listen"`    // HOST:PORT, HOST may be empty
	Advertise string `toml:"advertise"` // HOST:PORT that others dial; default: the host's name and Listen's port
	DataDir   string `toml:"data_dir"`  // Raft log, snapshots, archive
	PKIDir    string `toml:"pki_dir"`   // the cluster's CA and this controller's certificate
	Dev       bool   `toml:"dev"`       // controller, node and gauthd in one process
	Raft      Raft   `toml:"raft"`

	Archive Archive `toml:"archive"`
	Limits  Limits  `toml:"limits"`
	Metrics Metrics `toml:"metrics"`
	Traces  Traces  `toml:"traces"`
	Mail    Mail    `toml:"mail"`
	Submit  Submit  `toml:"submit"`
	Fence   Fence   `toml:"fence"`
	Burst   Burst   `toml:"burst"`
	Log     Log     `toml:"log"`
}

// Metrics configures what GET /metrics of a controller shows.
type Metrics struct {
	Accounts bool `toml:"accounts"` // accounts with their usage and credits
	// Compat names systems whose metric names are used in addition.
	Compat []string `toml:"compat" one:"slurm"`
}

// Traces configures where the leader sends the traces of finished jobs.
type Traces struct {
	Endpoint      string `toml:"endpoint"`       // URL of an OTLP collector; "": none are sent
	SamplePercent int    `toml:"sample_percent"` // share of the jobs
}

func (t *Traces) check(c *checker) {
	u, err := url.Parse(t.Endpoint)
	switch {
	case t.Endpoint == "":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		c.Fault("traces.endpoint", "it is not an http or https URL")
	case u.User != nil || u.RawQuery != "":
		c.Fault("traces.endpoint", "credentials and parameters are not supported: send to a collector on this host that adds them")
	}
	c.Between("traces.sample_percent", t.SamplePercent, 1, 100)
}

// Mail configures how the leader notifies users of their jobs (--mail-type).
type Mail struct {
	SMTP           string `toml:"smtp"`     // HOST:PORT of a relay
	Sendmail       string `toml:"sendmail"` // program of this host, used without a relay
	From           string `toml:"from"`
	Domain         string `toml:"domain"`  // completes recipients that are user names
	Webhook        string `toml:"webhook"` // URL
	WebhookKeyFile string `toml:"webhook_key_file"`
}

// Enabled reports whether notifications are sent.
func (m *Mail) Enabled() bool { return m.SMTP != "" || m.Sendmail != "" || m.Webhook != "" }

func (m *Mail) check(c *checker) {
	if m.SMTP != "" {
		c.address("mail.smtp", m.SMTP, false)
	}
	if m.Sendmail != "" {
		c.Absolute("mail.sendmail", m.Sendmail)
	}
	if m.WebhookKeyFile != "" {
		c.Absolute("mail.webhook_key_file", m.WebhookKeyFile)
	}
	if _, err := mail.ParseAddress(m.From); err != nil && (m.SMTP != "" || m.Sendmail != "") {
		c.Fault("mail.from", "%q is not a mail address", m.From)
	}
	u, err := url.Parse(m.Webhook)
	switch {
	case m.Webhook == "":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		c.Fault("mail.webhook", "it is not an http or https URL")
	case m.WebhookKeyFile == "":
		c.Fault("mail.webhook", "it needs webhook_key_file")
	}
}

// Submit configures the program of the site that may refuse or change jobs.
type Submit struct {
	Filter   string        `toml:"filter"`
	User     string        `toml:"user"` // that the program runs as
	Deadline time.Duration `toml:"deadline"`
}

// maxFilterTime is less than clients wait for one controller.
const maxFilterTime = 5 * time.Second

func (s *Submit) check(c *checker) {
	if s.Filter != "" {
		c.Absolute("submit.filter", s.Filter)
	}
	switch s.User {
	case "root", "0":
		c.Fault("submit.user", "the filter must not run as root")
	case "":
		if s.Filter != "" {
			c.Fault("submit.user", "required with submit.filter")
		}
	}
	if s.Deadline < 10*time.Millisecond || s.Deadline > maxFilterTime {
		c.Fault("submit.deadline", "%v is out of range, 10ms to %v", s.Deadline, maxFilterTime)
	}
}

// Fence configures the program of the site that proves that a node is off.
type Fence struct {
	Program string        `toml:"program"` // PROGRAM NODE; "": none
	Timeout time.Duration `toml:"timeout"` // of one run
}

func (f *Fence) check(c *checker) {
	if f.Program != "" {
		c.Absolute("fence.program", f.Program)
	}
	c.AtLeast("fence.timeout", f.Timeout, time.Second)
}

// Burst configures the provider program, which rents nodes from a cloud.
type Burst struct {
	Program     string        `toml:"program"` // "": none
	Args        []string      `toml:"args"`    // before the word of the call
	User        string        `toml:"user"`    // that the program runs as; "": that of gctld
	Environment []string      `toml:"environment"`
	Timeout     time.Duration `toml:"timeout"`  // of one call
	Identity    bool          `toml:"identity"` // instances prove their identity when they join
}

// maxBurstTimeout is shorter than the time after which an instance that the cloud does not list does not exist: a launch
// that succeeds late must not be taken for none.
const maxBurstTimeout = 4 * time.Minute

func (b *Burst) check(c *checker) {
	switch {
	case b.Program != "":
		c.Absolute("burst.program", b.Program)
	case b.User != "":
		c.Fault("burst.user", "it needs burst.program")
	case len(b.Args) > 0:
		c.Fault("burst.args", "it needs burst.program")
	case b.Identity:
		c.Fault("burst.identity", "it needs burst.program")
	}
	if b.User == "root" || b.User == "0" {
		c.Fault("burst.user", "the provider program must not run as root")
	}
	for i, pair := range b.Environment {
		at := fmt.Sprintf("burst.environment[%d]", i)
		name, _, found := strings.Cut(pair, "=")
		if !found || name == "" || strings.ContainsAny(pair, "\x00\n") {
			c.Fault(at, "%q is not NAME=VALUE", pair)
		}
	}
	if b.Timeout < time.Second || b.Timeout > maxBurstTimeout {
		c.Fault("burst.timeout", "%v is out of range, 1s to %v", b.Timeout, maxBurstTimeout)
	}
}

// Raft configures the replication of the log.
type Raft struct {
	Profile           string        `toml:"profile" one:"fast-lan,wan"`
	SnapshotThreshold int           `toml:"snapshot_threshold"` // log entries since the last snapshot
	SnapshotInterval  time.Duration `toml:"snapshot_interval"`  // how often the threshold is checked
	SnapshotsKept     int           `toml:"snapshots_kept"`
	TrailingLogs      int           `toml:"trailing_logs"` // entries kept behind a snapshot for slow followers
	Reserve           cluster.Bytes `toml:"reserve"`       // disk space reserved for a full disk
}

// DefaultController returns the defaults of gctld. LoadController sets Name and Advertise, which
// are empty here.
func DefaultController() Controller {
	return Controller{
		Listen:  ":" + DefaultPort,
		DataDir: "/var/lib/greylag/controller",
		PKIDir:  "/var/lib/greylag/controller/pki",
		Raft: Raft{
			Profile:           "fast-lan",
			SnapshotThreshold: 16384,
			SnapshotInterval:  time.Minute,
			SnapshotsKept:     3,
			TrailingLogs:      65536,
			Reserve:           64 * cluster.MiB,
		},
		Archive: defaultArchive(),
		Limits:  defaultLimits(),
		Traces:  Traces{SamplePercent: 100},
		Submit:  Submit{Deadline: 2 * time.Second},
		Fence:   Fence{Timeout: time.Minute},
		Burst:   Burst{Timeout: time.Minute},
		Log:     defaultLog(),
	}
}

// LoadController reads gctld's file and drop-ins. "" is ControllerPath, which may be absent.
func LoadController(path string) (Controller, error) {
	path, optional := pick(path, ControllerPath)
	return loadController(path, optional)
}

// LoadControllerIfAny is LoadController, except that a named file need not exist yet.
func LoadControllerIfAny(path string) (Controller, error) {
	path, _ = pick(path, ControllerPath)
	return loadController(path, true)
}

func loadController(path string, optional bool) (Controller, error) {
	cfg := DefaultController()
	err := load(path, optional, &cfg)
	return cfg, err
}

func (cfg *Controller) check(c *checker) {
	full, short := hostName()
	if cfg.Name == "" {
		cfg.Name = short
	}
	c.HostName("name", cfg.Name)
	c.address("listen", cfg.Listen, true)
	if cfg.Advertise != "" {
		c.address("advertise", cfg.Advertise, false)
	} else if _, port, err := net.SplitHostPort(cfg.Listen); err == nil {
		cfg.Advertise = net.JoinHostPort(full, port)
	}
	c.Absolute("data_dir", cfg.DataDir)
	c.Absolute("pki_dir", cfg.PKIDir)
	c.Between("raft.snapshot_threshold", cfg.Raft.SnapshotThreshold, 64, 100_000_000)
	c.AtLeast("raft.snapshot_interval", cfg.Raft.SnapshotInterval, time.Second)
	c.Between("raft.snapshots_kept", cfg.Raft.SnapshotsKept, 1, 100)
	c.Between("raft.trailing_logs", cfg.Raft.TrailingLogs, 64, 100_000_000)
	if cfg.Raft.Reserve < 0 || cfg.Raft.Reserve > cluster.TiB {
		c.Fault("raft.reserve", "%v is out of range, 0 to 1T", cfg.Raft.Reserve)
	}
	cfg.Archive.check(c)
	cfg.Limits.check(c)
	cfg.Traces.check(c)
	cfg.Mail.check(c)
	cfg.Submit.check(c)
	cfg.Fence.check(c)
	cfg.Burst.check(c)
}
