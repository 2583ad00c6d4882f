package gctld

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
	containerd "github.com/greylag/greylag/internal/runtime/containerd/private"
)

// dev is a whole cluster in one folder: a controller in this process, a node with simulated GPUs
// and a gauthd as child processes.
type dev struct {
	dir     string
	addr    string
	cfg     config.Controller
	runtime string // lines of gnoded.toml
}

// devGPUs is the node's number of simulated GPUs.
const devGPUs = 8

// RunDev runs a whole cluster until ctx ends. dir "" is a temporary folder, removed at the end;
// another one is kept, and its cluster continues.
func RunDev(ctx context.Context, dir, level string, stdout, stderr io.Writer) (err error) {
	ctx, ignore := signal.NotifyContext(ctx, syscall.SIGHUP) // a closed terminal ends the whole cluster
	defer ignore()
	if dir == "" {
		if dir, err = os.MkdirTemp("", "greylag-dev-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // users reach the socket through it
			return err
		}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	d := &dev{dir: dir}
	leave, err := d.openRuntime()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	if err := d.prepare(level); err != nil {
		return err
	}
	log := d.cfg.Log.Logger(stderr)
	slog.SetDefault(log)
	if err := Init(d.cfg, log); err != nil && !errors.Is(err, raftlog.ErrHasState) {
		return err
	}
	daemon, err := Open(d.cfg, log)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended, err := d.start(ctx, stop, stderr)
	if err != nil {
		stop(err)
	} else {
		fmt.Fprintf(stdout, "export GREYLAG_CONFIG=%s\n", filepath.Join(dir, "client.toml"))
	}
	err = daemon.Serve(ctx)
	stop(nil)
	ended()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = errors.Join(err, cause)
	}
	return err
}

// errDevRoot is returned to root without containerd.
var errDevRoot = errors.New("root's jobs need containerd to become their users: install it, or run gctld --dev as a user")

// openRuntime decides how the node runs jobs: as plain processes of the current user, or, for root,
// in a containerd of its own.
func (d *dev) openRuntime() (leave func() error, err error) {
	if os.Geteuid() != 0 {
		d.runtime = "runtime = \"process\"\n"
		return func() error { return nil }, nil
	}
	containers, err := containerd.Start(d.in("c"), containerd.Options{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDevRoot, err)
	}
	d.runtime = fmt.Sprintf("[containerd]\nsocket = %q\nnamespace = \"dev\"\n", containers.Address())
	if _, err := exec.LookPath("runc"); err != nil {
		d.runtime += "oci_runtime = \"crun\"\n"
	}
	return containers.Stop, nil
}

// prepare writes what is missing: certificates and configuration files.
func (d *dev) prepare(level string) error {
	addr, err := d.address()
	if err != nil {
		return err
	}
	d.addr = addr
	d.cfg = config.DefaultController()
	d.cfg.Name, d.cfg.Listen, d.cfg.Advertise = "dev", addr, addr
	d.cfg.DataDir, d.cfg.PKIDir = filepath.Join(d.dir, "controller"), filepath.Join(d.dir, "pki")
	if level != "" {
		d.cfg.Log.Level = level
	}
	if err := os.MkdirAll(d.cfg.DataDir, 0o700); err != nil {
		return err
	}
	if err := d.certify(); err != nil {
		return err
	}
	node := fmt.Sprintf("name = \"dev\"\ncontrollers = [%q]\ndata_dir = %q\nstate_dir = %q\npki_dir = %q\ncdi_dir = %q\n%s"+
		"[[simulated_gpus]]\ncount = %d\ntype = \"h100\"\nmemory = \"80GiB\"\n[log]\nlevel = %q\n",
		addr, d.in("node/data"), d.in("node/state"), d.in("node/pki"), d.in("node/cdi"), d.runtime, devGPUs, d.cfg.Log.Level)
	auth := fmt.Sprintf("socket = %q\npki_dir = %q\ncontrollers = [%q]\n[log]\nlevel = \"warn\"\n", d.in("auth.sock"), d.in("auth/pki"), addr)
	client := fmt.Sprintf("controllers = [%q]\nca_file = %q\nauth_socket = %q\n", addr, d.in("ca.pem"), d.in("auth.sock"))
	for name, text := range map[string]string{"gnoded.toml": node, "gauthd.toml": auth, "client.toml": client, "address": addr} {
		if err := os.WriteFile(d.in(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	ca, err := os.ReadFile(filepath.Join(d.cfg.PKIDir, pki.TrustFile))
	if err != nil {
		return err
	}
	return os.WriteFile(d.in("ca.pem"), ca, 0o644)
}

func (d *dev) in(name string) string { return filepath.Join(d.dir, name) }

// address returns the previous address, or a free one: members identify each other by it.
func (d *dev) address() (string, error) {
	if before, err := os.ReadFile(d.in("address")); err == nil {
		return string(before), nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// certify creates the CA and the three certificates, once.
func (d *dev) certify() error {
	ca, err := pki.OpenCA(d.cfg.PKIDir)
	if errors.Is(err, os.ErrNotExist) {
		var b [4]byte
		rand.Read(b[:]) // never fails (crypto/rand)
		if ca, err = pki.NewCA("dev-"+hex.EncodeToString(b[:]), time.Now()); err == nil {
			err = ca.Save(d.cfg.PKIDir)
		}
	}
	if err != nil {
		return err
	}
	for role, dir := range map[pki.Role]string{pki.RoleController: d.cfg.PKIDir, pki.RoleNode: d.in("node/pki"), pki.RoleAuth: d.in("auth/pki")} {
		grant := pki.Grant{Peer: pki.Peer{ClusterID: ca.Trust().ClusterID(), Role: role, Name: "dev"}}
		if role == pki.RoleController {
			grant.Hosts = []string{"127.0.0.1", "localhost"}
		}
		if err := ca.Issue(dir, grant, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// start starts the other programs, from the folder of this one. The end of one stops everything.
// ended waits for all.
func (d *dev) start(ctx context.Context, stop context.CancelCauseFunc, stderr io.Writer) (ended func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return func() {}, err
	}
	gone := make(chan struct{}, 2)
	started := 0
	ended = func() {
		for range started {
			<-gone
		}
	}
	for _, program := range []string{"gauthd", "gnoded"} {
		cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(self), program), "--config", d.in(program+".toml"))
		cmd.Stdout, cmd.Stderr = stderr, stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			return ended, fmt.Errorf("start %s: %w", program, err)
		}
		started++
		go func() {
			err := cmd.Wait()
			if ctx.Err() == nil {
				stop(fmt.Errorf("%s ended: %w", program, errors.Join(err, errEnded)))
			}
			gone <- struct{}{}
		}()
	}
	return ended, nil
}

// errEnded is the error of a program that ended without being asked to.
var errEnded = errors.New("ended while gctld is running")
