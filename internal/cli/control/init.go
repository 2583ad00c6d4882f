package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
)

const initLong = `Makes this host the first controller of a new cluster: the cluster's authority
and this controller's certificate, then the replicated log by gctld init. It
refuses where a cluster exists. Then start gctld, and gctl cluster token prints
what other hosts join with.

It also lets gauthd of this host vouch for its users, and writes the files that
the commands read, unless they exist.`

// founding is what gctl init was asked for.
type founding struct {
	config, name     string // gctld's file; the cluster's name
	auth, client, ca string // gauthd's file, the client's, and where the CA certificate goes
}

func (t *tool) init() *cobra.Command {
	var f founding
	c := &cobra.Command{
		Use: "init", Short: "Found a cluster on this host", Long: initLong, GroupID: host, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return t.found(f) },
	}
	c.Flags().StringVar(&f.config, "config", "", "gctld's file ["+config.ControllerPath+"]")
	c.Flags().StringVar(&f.name, "cluster", "greylag", "the cluster's name, for people")
	c.Flags().StringVar(&f.auth, "auth", "", "gauthd's file ["+config.AuthPath+"]")
	c.Flags().StringVar(&f.client, "client", config.ClientPath, "where to write the commands' file")
	c.Flags().StringVar(&f.ca, "ca", config.CAFile, "where to write the authority's certificate")
	return c
}

func (t *tool) found(f founding) error {
	var err error
	if f.ca, err = filepath.Abs(f.ca); err != nil { // it stands in a file that is read from anywhere
		return err
	}
	cfg, err := config.LoadController(f.config)
	if err != nil {
		return wrongFile(err)
	}
	gauthd, err := config.LoadAuth(f.auth)
	if err != nil {
		return wrongFile(err)
	}
	ca, err := newAuthority(cfg.PKIDir, f.name)
	if err != nil {
		return err
	}
	id := ca.Trust().ClusterID()
	if err := ca.Issue(cfg.PKIDir, controllerGrant(cfg, id), time.Now()); err != nil {
		return err
	}
	host, _ := shortHost()
	if err := ca.Issue(gauthd.PKIDir, pki.Grant{Peer: pki.Peer{ClusterID: id, Role: pki.RoleAuth, Name: host}}, time.Now()); err != nil {
		return err
	}
	if err := writeFile(f.ca, string(ca.Trust().PEM())); err != nil {
		return err
	}
	written, err := writeOnce(f.client, clientText([]string{cfg.Advertise}, f.ca, gauthd.Socket))
	if err != nil {
		return err
	}
	if !written {
		t.Note("%s exists and was left as it is", f.client)
	}
	if err := t.bootstrap(f); err != nil {
		return err
	}
	t.Note("start it: systemctl enable --now gctld gauthd; then let hosts join with what gctl cluster token prints")
	return t.said(nil, "cluster %s", id)
}

// newAuthority makes the CA, or goes on with the one that an init that broke off
// has left: one that has signed nothing yet.
func newAuthority(dir, name string) (*pki.CA, error) {
	if _, err := os.Stat(filepath.Join(dir, pki.IdentityFile)); err == nil {
		return nil, &adviceError{fmt.Errorf("this host is a controller already: %s exists", filepath.Join(dir, pki.IdentityFile)),
			"another controller joins with gctl join; to begin anew, move the folder away, and data_dir too"}
	}
	ca, err := pki.LoadCA(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return ca, err
	}
	id, err := pki.NewClusterID(name)
	if err != nil {
		return nil, &cli.UsageError{Problem: fmt.Sprintf("not a cluster's name: %q", name), Advice: "write up to 40 lower-case letters, digits and inner dashes"}
	}
	if ca, err = pki.NewCA(id, time.Now()); err != nil {
		return nil, err
	}
	return ca, ca.Save(dir)
}

// controllerGrant names the ways in which programs that check host names may reach
// the controller.
func controllerGrant(cfg config.Controller, id string) pki.Grant {
	g := pki.Grant{Peer: pki.Peer{ClusterID: id, Role: pki.RoleController, Name: cfg.Name}, Hosts: []string{cfg.Name, "localhost", "127.0.0.1", "::1"}}
	if host, _, err := net.SplitHostPort(cfg.Advertise); err == nil && host != cfg.Name {
		g.Hosts = append(g.Hosts, host)
	}
	return g
}

// bootstrap lets gctld make the log.
func (t *tool) bootstrap(f founding) error {
	path, err := daemon()
	if err != nil {
		return err
	}
	args := []string{"init"}
	if f.config != "" {
		args = append(args, "--config", f.config)
	}
	command := exec.Command(path, args...)
	command.Env, command.Stdout, command.Stderr = t.Environ, t.Stderr, t.Stderr
	if err := command.Run(); err != nil {
		return &adviceError{fmt.Errorf("gctld init: %w", err), "mend what it says and run gctld init again"}
	}
	return nil
}

func shortHost() (short, full string) {
	full, err := os.Hostname()
	if err != nil || full == "" {
		full = "localhost"
	}
	short, _, _ = strings.Cut(full, ".")
	return short, full
}

// wrongFile is an error of a configuration file; all of its faults are told.
func wrongFile(err error) error {
	return &cli.UsageError{Problem: err.Error(), Advice: "gctl config check finds all mistakes"}
}

// adviceError adds advice to an error.
type adviceError struct {
	error
	advice string
}

// Unwrap is the error alone.
func (e *adviceError) Unwrap() error { return e.error }

// Hint is the advice.
func (e *adviceError) Hint() string { return e.advice }
