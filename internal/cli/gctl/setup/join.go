package setup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/leased"
	"github.com/greylag/greylag/internal/pki"
)

const joinLong = `Makes this host part of a cluster: a node, a login node or a controller,
according to the token. It requests the host's certificate, stores it where
the daemon's file says (gnoded.toml, gauthd.toml, gctld.toml), and writes
missing files of the daemon and the commands. It does not change an existing
file: it prints the missing settings. Then it enables and starts the daemon
with systemd; without systemd it prints how to start it. TOKEN@HOST is the
output of gctl cluster token on a controller; HOST may have a port.

With --lease it joins a leased node: FILE contains the user data of its launch
in the cloud, and ID is its instance ID. It asks all controllers in FILE until
one knows the instance, at most until the token in FILE expires. The lease file
of gnoded.toml then says when the node powers off. --identity passes a document
by which the cloud proves which instance this is: aws reads it from the metadata
service of EC2, file:PATH from a file. Repeated, for example after a reboot, it
changes nothing.`

// joining holds the options of gctl join.
type joining struct {
	token            pki.JoinToken
	address          string
	config, role     string
	name, client, ca string
	noStart          bool // start no daemon
	leased           leasing
}

func (t commands) join() *cobra.Command {
	var j joining
	c := &cobra.Command{
		Use: "join TOKEN@HOST", Short: "Join this host to a cluster", Long: joinLong, GroupID: tool.GroupHost,
		Args: func(command *cobra.Command, args []string) error {
			if j.leased.file != "" {
				return cobra.NoArgs(command, args)
			}
			return cobra.ExactArgs(1)(command, args)
		},
		RunE: func(command *cobra.Command, args []string) error {
			var err error
			if err := j.read(args); err != nil {
				return err
			}
			for _, path := range []*string{&j.ca, &j.client} { // the files that contain them may be read from any directory
				if *path, err = filepath.Abs(*path); err != nil {
					return err
				}
			}
			return t.enter(command.Context(), j)
		},
	}
	c.Flags().StringVar(&j.config, "config", "", "the daemon's file [its own, in /etc/greylag]")
	c.Flags().StringVar(&j.role, "role", "", "refuse a token for another role: node, auth or controller")
	c.Flags().StringVar(&j.name, "name", "", "the host's name [from the daemon's file]")
	c.Flags().StringVar(&j.client, "client", config.ClientPath, "path of the client configuration to write, unless it exists")
	c.Flags().StringVar(&j.ca, "ca", config.CAFile, "path of the CA certificate")
	c.Flags().StringVar(&j.leased.file, "lease", "", "file with the user data of a launch, instead of TOKEN@HOST")
	c.Flags().StringVar(&j.leased.instance, "instance", "", "instance ID of this host in the cloud, with --lease")
	c.Flags().StringVar(&j.leased.identity, "identity", "", "identity document of the instance, with --lease: aws, or file:PATH")
	c.Flags().BoolVar(&j.noStart, "no-start", false, "neither enable nor start the daemon")
	return c
}

// place is the certificate folder of a role's daemon, and its identity.
type place struct {
	pkiDir, name, advertise, socket string
	dataDir                         string   // of a node or a controller
	controllers                     []string // in the daemon's file; none for a controller
	daemon                          daemonFile
	ctld                            config.Controller // of a controller
	leaseFile, metadata             string            // of a node
}

// placeOf reads the daemon's file.
func (j joining) placeOf() (place, error) {
	at := place{socket: config.AuthSocket, daemon: daemonFile{file: j.config}}
	var err error
	switch j.token.Role {
	case pki.RoleNode:
		var cfg config.Node
		cfg, err = config.LoadNodeIfAny(j.config)
		at.daemon.program = "gnoded"
		at.pkiDir, at.dataDir, at.name, at.controllers, at.leaseFile = cfg.PKIDir, cfg.DataDir, cfg.Name, cfg.Controllers, cfg.LeaseFile
		at.metadata = cfg.ReclaimURL
	case pki.RoleAuth:
		var cfg config.Auth
		cfg, err = config.LoadAuthIfAny(j.config)
		at.daemon.program = "gauthd"
		at.pkiDir, at.socket, at.controllers = cfg.PKIDir, cfg.Socket, cfg.Controllers
		at.name, _ = shortHost()
	case pki.RoleController:
		var cfg config.Controller
		cfg, err = config.LoadControllerIfAny(j.config)
		at.daemon.program, at.ctld = "gctld", cfg
		at.pkiDir, at.dataDir, at.name = cfg.PKIDir, cfg.DataDir, cfg.Name
	}
	if err != nil {
		return at, wrongFile(err)
	}
	if j.name != "" {
		at.name = j.name
	}
	return at, nil
}

// read reads the argument, or the file of --lease.
func (j *joining) read(args []string) (err error) {
	if j.leased.file != "" {
		return j.readLease()
	}
	if j.leased.instance != "" || j.leased.identity != "" {
		return &ui.UsageError{Problem: "--instance and --identity need --lease", Advice: "--lease names the file with the user data of the instance"}
	}
	if j.token, j.address, err = pki.ParseJoin(args[0], config.DefaultPort); err != nil {
		return &ui.UsageError{Problem: err.Error(), Advice: "copy the whole line that gctl cluster token prints"}
	}
	return nil
}

func (t commands) enter(ctx context.Context, j joining) error {
	if j.role != "" && j.role != string(j.token.Role) {
		return &ui.UsageError{Problem: fmt.Sprintf("the token is for role %s, not %s", j.token.Role, j.role), Advice: "create one with gctl cluster token --role " + j.role}
	}
	at, err := j.placeOf()
	if err != nil {
		return err
	}
	if name := j.hasJoined(at); name != "" {
		at.name = name
		return t.finishJoin(ctx, j, at, j.leased.data.Cluster)
	}
	if j.token.Expired(time.Now()) {
		return j.expired()
	}
	if err := j.checkHost(at); err != nil { // before the token is used
		return err
	}
	if j.token.Role == pki.RoleController {
		at.advertise = t.findAdvertised(ctx, j.config, at.ctld, j.address)
	}
	identity, err := leased.Identity(ctx, j.leased.identity, at.metadata)
	if err != nil {
		return err
	}
	if j.leased.file != "" && !j.noStart {
		t.armPowerOff(ctx, j.leased.data.LifetimeSeconds)
	}
	key, csr, err := pki.NewRequest(j.token.Role)
	if err != nil {
		return err
	}
	c := client.New(client.Config{Controllers: j.controllers(), TLS: pki.PinnedTLS(j.token.CA), Timeout: j.patience()})
	defer c.Close()
	t.TellRetries(c)
	answer, err := c.Cluster().Join(ctx, &greylagv1.JoinRequest{
		Token: j.token.String(), Name: at.name, Csr: csr, Advertise: at.advertise, Clock: timestamppb.Now(), Instance: j.leased.instance, Identity: identity,
	})
	if err != nil {
		return j.refused(err)
	}
	trust, err := pki.PinnedTrust(answer.Ca, j.token.CA)
	if err != nil {
		return err
	}
	if at.dataDir != "" { // before its content, whose creation would make it accessible to all
		if err := pki.MakePrivate(at.dataDir); err != nil {
			return err
		}
	}
	switch {
	case j.token.Role == pki.RoleController:
		err = keepCAKey(at.pkiDir, trust, answer.CaKey)
	case j.leased.file != "": // before the certificate: gnoded starts with both
		at.name, err = j.keepLease(at, trust, answer)
		at.controllers = answer.Controllers // gnoded learns them: see writeClient
	}
	if err != nil {
		return err
	}
	if err := pki.SaveIdentity(at.pkiDir, trust, key, answer.Certificate); err != nil {
		return err
	}
	return t.writeHostFiles(ctx, j, at, trust, answer)
}

// expired is the error of a token that has expired.
func (j joining) expired() error {
	if j.leased.file != "" {
		return hint.New(fmt.Errorf("the join token of the launch expired at %s", j.token.Expires.Local().Format(ui.TimeLayout)), "end the instance; if it is new, check its clock")
	}
	return &ui.UsageError{Problem: "the token expired at " + j.token.Expires.Local().Format(ui.TimeLayout), Advice: "create another with gctl cluster token; if it is new, check this host's clock"}
}

// refused adds the address of the token to an error of a controller that does not answer, or is of
// another cluster. The files of this host do not name it.
func (j joining) refused(err error) error {
	switch {
	case errors.Is(err, pki.ErrUntrusted):
		return hint.New(err, fmt.Sprintf("%s is a controller of another cluster, or the CA was rotated since: create the token there, with gctl cluster token", j.address))
	case connect.CodeOf(err) != connect.CodeUnavailable, j.leased.file != "":
		return err
	}
	return hint.New(err, fmt.Sprintf("check that gctld is running at %s and that this host can reach its port; the token is valid at every controller: gctl join TOKEN@HOST", j.address))
}

// controllersFile, in a controller's data_dir, names the controllers that gctld asks to be made a
// member.
const controllersFile = "controllers"

// keepCAKey saves what a controller needs to let others join.
func keepCAKey(dir string, trust *pki.Trust, key []byte) error {
	if len(key) == 0 {
		return errors.New("the answer lacks the CA key that a controller needs")
	}
	ca, err := pki.NewCAFrom(trust, key)
	if err != nil {
		return err
	}
	return ca.Save(dir)
}

// named returns the setting of the daemon's name if it differs from the host's name.
func (j joining) named() []setting {
	if j.name == "" {
		return nil
	}
	return []setting{{"name", strconv.Quote(j.name)}}
}

// writeHostFiles writes the files of this host and starts its daemon.
func (t commands) writeHostFiles(ctx context.Context, j joining, at place, trust *pki.Trust, answer *greylagv1.JoinResponse) error {
	controllers := answer.Controllers
	if len(controllers) == 0 {
		controllers = []string{j.address}
	}
	var err error
	switch j.token.Role {
	case pki.RoleController:
		err = errors.Join(
			config.WriteFile(filepath.Join(at.dataDir, controllersFile), strings.Join(controllers, "\n")+"\n"),
			t.writeController(j.config, at.name, at.advertise, at.ctld))
	case pki.RoleNode:
		err = t.writeDaemon("gnoded", j.config, config.NodePath, at.controllers, controllers, j.named()...)
	case pki.RoleAuth:
		err = t.writeDaemon("gauthd", j.config, config.AuthPath, at.controllers, controllers)
	}
	if err != nil {
		return err
	}
	if err := t.writeClient(hostFiles{j.client, j.ca, at.socket}, string(trust.PEM()), at.pkiDir, controllers); err != nil {
		return err
	}
	if at.daemon.program == "gctld" {
		if err := pki.Adopt(at.dataDir, at.pkiDir); err != nil {
			return err
		}
	}
	return t.finishJoin(ctx, j, at, trust.ClusterID())
}

// finishJoin reports a join and starts the daemon.
func (t commands) finishJoin(ctx context.Context, j joining, at place, clusterID string) error {
	if err := t.Printed(nil, "%s %s joined cluster %s", roleText(j.token.Role), at.name, clusterID); err != nil || j.noStart {
		return err
	}
	_, err := t.startDaemons(ctx, at.daemon)
	return err
}
