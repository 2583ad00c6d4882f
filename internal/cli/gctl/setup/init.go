// Package setup has the commands that make this host a controller or a node of a cluster.
package setup

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
)

// commands holds the commands of this package in one run of gctl.
type commands struct{ *tool.Tool }

// InitCommand returns gctl init.
func InitCommand(t *tool.Tool) *cobra.Command { return commands{t}.init() }

// JoinCommand returns gctl join.
func JoinCommand(t *tool.Tool) *cobra.Command { return commands{t}.join() }

const initLong = `Makes this host the first controller of a new cluster: creates the cluster's CA
and this controller's certificate, then the replicated log (gctld init). It
refuses to run on a controller, or if the client configuration
(GREYLAG_CONFIG, or /etc/greylag/client.toml) names controllers that answer:
add a controller to that cluster with gctl join.

It also issues a certificate to gauthd on this host, and writes gctld.toml,
gauthd.toml and the client configuration, unless they exist. Then it enables and
starts gctld and gauthd with systemd, and prints the command with which nodes
join. Without systemd it prints how to start them.

On a controller that has its data and its CA it writes the files that are
missing on this host, and starts the daemons. --restore first restores the data
from a backup (gctld restore).`

// initOptions are the options of gctl init.
type initOptions struct {
	config, name     string // gctld's file; the cluster's name
	auth, client, ca string // the files of gauthd and the client, and the path of the CA certificate
	force            bool   // initialize a second cluster although one answers
	noStart          bool   // start no daemon
	withNode         bool   // make this host a node, too
	restore          string // a backup from which to restore the cluster; "" for none
}

func (t commands) init() *cobra.Command {
	var f initOptions
	c := &cobra.Command{
		Use: "init", Short: "Initialize a cluster on this host", Long: initLong, GroupID: tool.GroupHost, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return t.initialize(c.Context(), f) },
	}
	c.Flags().StringVar(&f.config, "config", "", "gctld's file ["+config.ControllerPath+"]")
	c.Flags().StringVar(&f.name, "cluster", "", "display name of the cluster [the host's name]")
	c.Flags().BoolVar(&f.withNode, "with-node", false, "make this host a node of the cluster as well")
	c.Flags().BoolVar(&f.noStart, "no-start", false, "neither enable nor start the daemons")
	c.MarkFlagsMutuallyExclusive("with-node", "no-start")
	c.Flags().BoolVar(&f.force, "force", false, "initialize another cluster even if the one in the client configuration responds")
	c.Flags().StringVar(&f.restore, "restore", "", "restore the cluster from this backup; the copy of its pki_dir must be in place")
	c.MarkFlagsMutuallyExclusive("restore", "with-node")
	c.MarkFlagsMutuallyExclusive("restore", "cluster")
	c.MarkFlagsMutuallyExclusive("restore", "force")
	c.Flags().StringVar(&f.auth, "auth", "", "gauthd's file ["+config.AuthPath+"]")
	c.Flags().StringVar(&f.client, "client", config.ClientPath, "path of the client configuration")
	c.Flags().StringVar(&f.ca, "ca", config.CAFile, "path of the CA certificate")
	return c
}

func (t commands) initialize(ctx context.Context, f initOptions) error {
	var err error
	for _, path := range []*string{&f.ca, &f.client} { // the files that contain them may be read from any directory
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	cfg, err := config.LoadControllerIfAny(f.config)
	if err != nil {
		return wrongFile(err)
	}
	gauthd, err := config.LoadAuthIfAny(f.auth)
	if err != nil {
		return wrongFile(err)
	}
	if err := checkWritable(f.directories(cfg, gauthd)...); err != nil {
		return err
	}
	if f.restore != "" || f.name == "" && !f.force && isController(cfg) {
		if missing := missingFiles(f, cfg, gauthd); len(missing) > 0 || f.restore != "" {
			return t.repair(ctx, f, cfg, gauthd, missing)
		}
	}
	if err := notYet(ctx, cfg, f.force); err != nil {
		return err
	}
	return t.create(ctx, f, cfg, gauthd)
}

// create initializes a cluster and starts the daemons of this host.
func (t commands) create(ctx context.Context, f initOptions, cfg config.Controller, gauthd config.Auth) error {
	if f.withNode {
		if err := requireInstalled("gnoded"); err != nil {
			return err
		}
	}
	if f.name == "" {
		host, _ := shortHost()
		f.name = strings.ToLower(host)
	}
	if _, err := pki.NewClusterID(f.name); err != nil { // before any file is written
		return &ui.UsageError{Problem: fmt.Sprintf("not a cluster name: %q", f.name), Advice: "write up to 40 lower-case letters, digits and inner dashes"}
	}
	advertise := t.findAdvertised(ctx, f.config, cfg, anyHost)
	if path := cmp.Or(f.config, config.ControllerPath); advertise != cfg.Advertise && exists(path) {
		return hint.New(fmt.Errorf("other hosts cannot reach this controller at %s: the name does not resolve, or only to a loopback address", cfg.Advertise),
			reachable(cfg.Listen, advertise)+" in "+path)
	}
	if err := t.writeController(f.config, cfg.Name, advertise, cfg); err != nil {
		return err
	}
	cfg.Advertise = advertise
	controllers := []string{cfg.Advertise}
	if err := t.writeDaemon("gauthd", f.auth, config.AuthPath, gauthd.Controllers, controllers); err != nil {
		return err
	}
	id, authority, err := f.certify(cfg, gauthd.PKIDir)
	if err != nil {
		return err
	}
	files := hostFiles{f.client, f.ca, gauthd.Socket}
	if err := t.writeClient(files, authority, gauthd.PKIDir, controllers); err != nil {
		return err
	}
	if err := client.RecordCommands(cfg.PKIDir, f.client); err != nil {
		return err
	}
	if err := t.runController(f, "init"); err != nil {
		return err
	}
	if err := pki.Adopt(cfg.DataDir, cfg.PKIDir); err != nil {
		return err
	}
	if err := t.Printed(nil, "cluster %s", id); err != nil {
		return err
	}
	return t.startController(ctx, f)
}

// startController starts the daemons of this host, and prints how other hosts join.
func (t commands) startController(ctx context.Context, f initOptions) error {
	daemons := []daemonFile{{"gctld", f.config}, {"gauthd", f.auth}}
	if f.noStart {
		t.Note("start the daemons: systemctl enable --now gctld gauthd; then join hosts with the command that gctl cluster token prints")
		return nil
	}
	started, err := t.startDaemons(ctx, daemons...)
	if err != nil {
		return err
	}
	if !started {
		t.Note("then join hosts with the command that gctl cluster token prints")
		return nil
	}
	return t.printJoin(ctx, f)
}

// printJoin prints how nodes join the running cluster, and makes this host one if that was requested.
func (t commands) printJoin(ctx context.Context, f initOptions) error {
	cfg, err := config.LoadClient(f.client)
	if err != nil {
		return wrongFile(err)
	}
	c, err := t.Dial(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	create := func(uses uint32) (string, *greylagv1.CreateTokenResponse, error) {
		return CreateToken(ctx, c, &greylagv1.CreateTokenRequest{Role: greylagv1.HostRole_HOST_ROLE_NODE, Uses: uses})
	}
	if f.withNode {
		argument, _, err := create(1)
		if err != nil {
			return err
		}
		j := joining{client: f.client, ca: f.ca}
		if j.token, j.address, err = pki.ParseJoin(argument, config.DefaultPort); err != nil {
			return err
		}
		if err := t.enter(ctx, j); err != nil {
			return err
		}
	}
	argument, answer, err := create(nodesToJoin)
	if err != nil {
		return err
	}
	t.Note("run this as root on each compute node, until %s; for login nodes: gctl cluster token --auth; for controllers: gctl cluster token --controller", t.FormatTime(answer.Expires))
	return t.Printed(nil, "gctl join %s", argument)
}

// certify creates the cluster's CA and the certificates of this host's daemons. It returns the
// cluster's ID and the CA certificate.
func (f initOptions) certify(cfg config.Controller, authDir string) (id, authority string, err error) {
	if err := pki.MakePrivate(cfg.DataDir); err != nil { // before its content, whose creation would make it accessible to all
		return "", "", err
	}
	ca, err := newAuthority(cfg.PKIDir, f.name)
	if err != nil {
		return "", "", err
	}
	id = ca.Trust().ClusterID()
	if err := ca.Issue(cfg.PKIDir, controllerGrant(cfg, id), time.Now()); err != nil {
		return "", "", err
	}
	host, _ := shortHost()
	err = ca.Issue(authDir, pki.Grant{Peer: pki.Peer{ClusterID: id, Role: pki.RoleAuth, Name: host}}, time.Now())
	return id, string(ca.Trust().PEM()), err
}

// directories returns the directories in which gctl init writes.
func (f initOptions) directories(cfg config.Controller, gauthd config.Auth) []string {
	return []string{
		cfg.DataDir, cfg.PKIDir, gauthd.PKIDir, filepath.Dir(cmp.Or(f.config, config.ControllerPath)), filepath.Dir(cmp.Or(f.auth, config.AuthPath)),
		filepath.Dir(f.client), filepath.Dir(config.ControllersPath(f.client)), filepath.Dir(f.ca),
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// nodesToJoin is the number of nodes that can join with the token of gctl init: the limit of a token.
const nodesToJoin = 1000

// anyHost stands for any other host: nothing is sent there (RFC 5737).
const anyHost = "192.0.2.1:9"

// findAdvertised returns the address at which other hosts, such as toward, can dial the controller of
// this host. If it is unknown, it warns and returns the address in cfg.
func (t commands) findAdvertised(ctx context.Context, file string, cfg config.Controller, toward string) string {
	_, full := shortHost()
	at, ok := advertised(ctx, cfg.Advertise, full, toward)
	if !ok {
		t.Warn(fmt.Sprintf("other hosts may be unable to reach this controller at %s; set advertise in %s", at, cmp.Or(file, config.ControllerPath)))
	}
	return at
}

// reachable returns the settings with which others can dial a controller that listens at an address.
func reachable(listen, advertise string) string {
	host, port, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	switch {
	case err != nil || ip == nil || ip.IsUnspecified():
		return fmt.Sprintf("set advertise = %q", advertise)
	case ip.IsLoopback():
		return fmt.Sprintf("set advertise = %q and listen = %q", advertise, ":"+port)
	}
	return fmt.Sprintf("set advertise = %q", listen)
}

// writeController writes gctld's file unless it exists. For an existing file it prints the settings
// that differ.
func (t commands) writeController(file, name, advertise string, cfg config.Controller) error {
	path := cmp.Or(file, config.ControllerPath)
	needed := []setting{{"name", strconv.Quote(name)}, {"advertise", strconv.Quote(advertise)}}
	written, err := writeOnce(path, daemonText("gctld", needed))
	if err != nil || written {
		return err
	}
	for i, same := range []bool{name == cfg.Name, advertise == cfg.Advertise} {
		if !same {
			t.Note("%s needs this setting: %s", path, needed[i])
		}
	}
	return nil
}

// writeDaemon writes the file of gnoded or gauthd unless it exists. For an existing file that names
// none of the controllers it prints the line to add.
func (t commands) writeDaemon(name, file, standard string, present, controllers []string, more ...setting) error {
	path := cmp.Or(file, standard)
	needed := append(more, setting{"controllers", config.List(controllers)})
	written, err := writeOnce(path, daemonText(name, needed))
	if err == nil && !written && !overlap(present, controllers) {
		t.Note("%s names none of the controllers; add to it: %s", path, needed[len(needed)-1])
	}
	return err
}

// notYet refuses to initialize a cluster on a host that belongs to one: as a controller, or, unless
// force, because a controller in its commands' file answers.
func notYet(ctx context.Context, cfg config.Controller, force bool) error {
	if exists(filepath.Join(cfg.PKIDir, pki.IdentityFile)) {
		return alreadyController(cfg)
	}
	if force {
		return nil
	}
	present, err := config.LoadClient("")
	switch {
	case errors.Is(err, fs.ErrNotExist): // GREYLAG_CONFIG names a file still to be written
		return nil
	case err != nil:
		return wrongFile(err)
	}
	if alive := answering(ctx, present.Controllers); alive != "" {
		from := os.Getenv(config.ClientEnv)
		if from == "" {
			from = config.ClientPath
		}
		return hint.New(fmt.Errorf("a cluster already exists: controller %s in %s responds", alive, from),
			"another controller joins with gctl join; --force initializes a second cluster")
	}
	return nil
}

// answerTime is the time limit of all controllers together for an answer.
const answerTime = 3 * time.Second

// answering returns the first address at which a program speaks TLS; "" if none does. Nothing is
// sent and nothing trusted, so its certificate does not matter.
func answering(ctx context.Context, addresses []string) string {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	answered := make([]bool, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() {
			dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}}
			conn, err := dialer.DialContext(ctx, "tcp", address)
			if answered[i] = err == nil; answered[i] {
				conn.Close()
			}
		})
	}
	asked.Wait()
	if i := slices.Index(answered, true); i >= 0 {
		return addresses[i]
	}
	return ""
}

// newAuthority creates the CA, or continues with that of an interrupted init: one that has signed
// nothing yet.
func newAuthority(dir, name string) (*pki.CA, error) {
	ca, err := pki.OpenCA(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return ca, err
	}
	id, err := pki.NewClusterID(name)
	if err != nil {
		return nil, err
	}
	if ca, err = pki.NewCA(id, time.Now()); err != nil {
		return nil, err
	}
	return ca, ca.Save(dir)
}

// controllerGrant returns the names under which programs that check host names may reach the
// controller.
func controllerGrant(cfg config.Controller, id string) pki.Grant {
	g := pki.Grant{Peer: pki.Peer{ClusterID: id, Role: pki.RoleController, Name: cfg.Name}, Hosts: []string{cfg.Name, "localhost", "127.0.0.1", "::1"}}
	if host, _, err := net.SplitHostPort(cfg.Advertise); err == nil && host != cfg.Name {
		g.Hosts = append(g.Hosts, host)
	}
	return g
}

// runController runs gctld init, or another of its commands on a stopped controller.
func (t commands) runController(f initOptions, verb string, more ...string) error {
	path, err := tool.FindController()
	if err != nil {
		return err
	}
	args := append([]string{verb}, more...)
	if f.config != "" {
		args = append(args, "--config", f.config)
	}
	command := exec.Command(path, args...)
	command.Env, command.Stdout, command.Stderr = t.Environ, t.Stderr, t.Stderr
	if err := command.Run(); err != nil {
		return hint.New(fmt.Errorf("gctld %s: %w", verb, err), "fix the problem, then run "+strings.Join(append([]string{"gctld"}, args...), " ")+" again")
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

// wrongFile is an error of a configuration file, with all its problems.
func wrongFile(err error) error {
	return &ui.UsageError{Problem: err.Error(), Advice: "gctl config check reports all errors"}
}
