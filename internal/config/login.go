package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/greylag/greylag/internal/config/strict"
)

// The standard paths of gauthd's and the commands' files, and of the socket between them.
const (
	AuthPath   = "/etc/greylag/gauthd.toml"
	ClientPath = "/etc/greylag/client.toml"
	// ClientEnv is the variable with the path of another file than ClientPath.
	ClientEnv = "GREYLAG_CONFIG"
	// SocketEnv is the variable with the path of the task's socket inside a job. The commands use
	// it and ignore controllers, ca_file and auth_socket of the file.
	SocketEnv  = "GREYLAG_SOCKET"
	AuthSocket = "/run/greylag/auth.sock"
	// CAFile is the CA certificate that gctl join writes for the commands of a host.
	CAFile = "/etc/greylag/client.d/ca.pem"
)

// Auth is gauthd's file. The name of its host is that of its certificate.
type Auth struct {
	Socket      string   `toml:"socket"`
	PKIDir      string   `toml:"pki_dir"`
	Controllers []string `toml:"controllers"` // for renewing the certificate; after loading: HOST:PORT each
	Log         Log      `toml:"log"`
}

// DefaultAuth returns the defaults of gauthd.
func DefaultAuth() Auth {
	return Auth{
		Socket:      AuthSocket,
		PKIDir:      "/var/lib/greylag/auth/pki",
		Controllers: []string{"localhost:" + DefaultPort},
		Log:         defaultLog(),
	}
}

// LoadAuth reads gauthd's file and drop-ins. "" is AuthPath, which may be absent.
func LoadAuth(path string) (Auth, error) {
	path, optional := pick(path, AuthPath)
	return loadAuth(path, optional)
}

// LoadAuthIfAny is LoadAuth, except that a named file need not exist yet.
func LoadAuthIfAny(path string) (Auth, error) {
	path, _ = pick(path, AuthPath)
	return loadAuth(path, true)
}

func loadAuth(path string, optional bool) (Auth, error) {
	cfg := DefaultAuth()
	err := load(path, optional, &cfg)
	return cfg, err
}

func (cfg *Auth) check(c *checker) {
	c.socket("socket", cfg.Socket)
	c.Absolute("pki_dir", cfg.PKIDir)
	cfg.Controllers = c.addresses("controllers", cfg.Controllers)
}

// Client is the file of gsubmit, gqueue, gcancel and gctl.
type Client struct {
	Controllers []string      `toml:"controllers"` // after loading: HOST:PORT each
	CAFile      string        `toml:"ca_file"`
	AuthSocket  string        `toml:"auth_socket"`
	Output      string        `toml:"output" one:"table,json"`
	Color       string        `toml:"color" one:"auto,always,never"`
	Timeout     time.Duration `toml:"timeout"` // of one command, over all its attempts
	Direct      bool          `toml:"-"`       // not through gauthd, which chooses the controller
	JobSocket   string        `toml:"-"`       // from SocketEnv; "" outside jobs
}

// DefaultClient returns the defaults of the commands.
func DefaultClient() Client {
	return Client{
		Controllers: []string{"localhost:" + DefaultPort},
		CAFile:      CAFile,
		AuthSocket:  AuthSocket,
		Output:      "table",
		Color:       "auto",
		Timeout:     time.Minute,
	}
}

// AskOnly has commands use one controller, HOST or HOST:PORT, and no other.
func (cfg *Client) AskOnly(controller string) error {
	var named []string
	faults := strict.Locate(strict.Source{}, func(c *strict.Checker) {
		named = (&checker{c}).addresses("controller", []string{controller})
	})
	switch {
	case len(faults) > 0:
		return errors.New(faults[0].Problem)
	case len(named) > 1:
		return fmt.Errorf("%q stands for %d controllers", controller, len(named))
	}
	cfg.Controllers, cfg.Direct = named, true
	return nil
}

// LoadClient reads the commands' file and drop-ins. "" is the file that ClientEnv names, or
// ClientPath; only the latter may be absent.
func LoadClient(path string) (Client, error) {
	if path == "" {
		path = os.Getenv(ClientEnv)
	}
	path, optional := pick(path, ClientPath)
	cfg := DefaultClient()
	err := load(path, optional, &cfg)
	cfg.JobSocket = os.Getenv(SocketEnv)
	if err == nil && cfg.JobSocket != "" && !(filepath.IsAbs(cfg.JobSocket) && len(cfg.JobSocket) <= maxSocket) {
		err = fmt.Errorf("%s is %.200q: must be an absolute path of at most %d characters", SocketEnv, cfg.JobSocket, maxSocket)
	}
	return cfg, err
}

func (cfg *Client) check(c *checker) {
	cfg.Controllers = c.addresses("controllers", cfg.Controllers)
	c.Absolute("ca_file", cfg.CAFile)
	c.socket("auth_socket", cfg.AuthSocket)
	c.AtLeast("timeout", cfg.Timeout, time.Second)
}

// maxSocket is the longest path of a Unix socket (unix(7)).
const maxSocket = 107

func (c *checker) socket(key, path string) {
	c.Absolute(key, path)
	if len(path) > maxSocket {
		c.Fault(key, "the path of a socket has at most %d characters, this one has %d", maxSocket, len(path))
	}
}
