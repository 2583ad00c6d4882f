package setup

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
)

// missingFiles returns which files that gctl init creates are missing on this host.
func missingFiles(f initOptions, cfg config.Controller, gauthd config.Auth) []string {
	var missing []string
	for _, path := range []string{
		cmp.Or(f.config, config.ControllerPath), cmp.Or(f.auth, config.AuthPath), filepath.Join(cfg.PKIDir, pki.IdentityFile),
		filepath.Join(gauthd.PKIDir, pki.IdentityFile), f.client, f.ca,
	} {
		if !exists(path) {
			missing = append(missing, path)
		}
	}
	return missing
}

// raftFolder, in a controller's data_dir, has the replicated log.
const raftFolder = "raft"

// hasData reports whether a controller has its state, or the addresses from which it will get it.
func hasData(cfg config.Controller) bool {
	return exists(filepath.Join(cfg.DataDir, raftFolder)) || exists(filepath.Join(cfg.DataDir, controllersFile))
}

// alreadyController returns why a host that has a controller's keys cannot become one.
func alreadyController(cfg config.Controller) error {
	if hasData(cfg) {
		return hint.New(fmt.Errorf("this host is already a controller: %s exists", filepath.Join(cfg.PKIDir, pki.IdentityFile)),
			"another controller joins with gctl join; to start over, move the directory and data_dir away")
	}
	return hint.New(fmt.Errorf("this host is already a controller, without data: %s exists, %s does not", filepath.Join(cfg.PKIDir, pki.IdentityFile), filepath.Join(cfg.DataDir, raftFolder)),
		"to restore a backup: gctl init --restore FILE; after an interrupted gctl init: gctld init; to start over, move the directory away")
}

// isController reports whether this host has a controller's CA and data.
func isController(cfg config.Controller) bool {
	_, err := pki.OpenCA(cfg.PKIDir)
	return err == nil && hasData(cfg)
}

// repair writes the missing files of a controller whose CA and data are present, such as on another
// host after a disaster, and starts its daemons. If a backup is named it restores the data first.
func (t commands) repair(ctx context.Context, f initOptions, cfg config.Controller, gauthd config.Auth, missing []string) error {
	if f.withNode {
		return &ui.UsageError{Problem: "this host is already a controller: --with-node is for a new cluster", Advice: "run gctl init without it; then gctl join with the output of gctl cluster token"}
	}
	ca, err := pki.OpenCA(cfg.PKIDir)
	if err != nil {
		return hint.New(fmt.Errorf("this host has no CA: %w", err), "copy the cluster's pki_dir to "+cfg.PKIDir+" first")
	}
	cfg.Advertise = t.findAdvertised(ctx, f.config, cfg, anyHost)
	if err := t.writeController(f.config, cfg.Name, cfg.Advertise, cfg); err != nil {
		return err
	}
	if f.restore != "" {
		if err := t.runController(f, "restore", "-i", f.restore); err != nil {
			return err
		}
	}
	controllers := []string{cfg.Advertise}
	if err := t.writeDaemon("gauthd", f.auth, config.AuthPath, gauthd.Controllers, controllers); err != nil {
		return err
	}
	id := ca.Trust().ClusterID()
	renewed, err := reissue(ca, cfg, gauthd.PKIDir)
	if err != nil {
		return err
	}
	missing = append(missing, renewed...)
	slices.Sort(missing)
	missing = slices.Compact(missing)
	files := hostFiles{f.client, f.ca, gauthd.Socket}
	if err := t.writeClient(files, string(ca.Trust().PEM()), gauthd.PKIDir, controllers); err != nil {
		return err
	}
	if err := client.RecordCommands(cfg.PKIDir, f.client); err != nil {
		return err
	}
	if err := pki.Adopt(cfg.DataDir, cfg.PKIDir); err != nil {
		return err
	}
	if err := t.Printed(nil, "controller %s of cluster %s", cfg.Name, id); err != nil {
		return err
	}
	if len(missing) > 0 {
		t.Note("wrote: %s", strings.Join(missing, ", "))
	}
	daemons := []daemonFile{{"gctld", f.config}, {"gauthd", f.auth}}
	if f.noStart {
		t.Note("start the daemons: systemctl enable gctld gauthd; systemctl restart gctld gauthd")
		return nil
	}
	_, err = t.startDaemons(ctx, daemons...)
	return err
}

// reissue issues the certificates of this host's daemons that are missing, have expired or are of
// another host. It returns their paths.
func reissue(ca *pki.CA, cfg config.Controller, authDir string) (issued []string, err error) {
	host, _ := shortHost()
	id := ca.Trust().ClusterID()
	for _, x := range []struct {
		dir   string
		grant pki.Grant
	}{{cfg.PKIDir, controllerGrant(cfg, id)}, {authDir, pki.Grant{Peer: pki.Peer{ClusterID: id, Role: pki.RoleAuth, Name: host}}}} {
		if present, _, err := pki.OpenIdentity(x.dir); err == nil && present.Peer() == x.grant.Peer {
			continue
		}
		if err := ca.Issue(x.dir, x.grant, time.Now()); err != nil {
			return nil, err
		}
		issued = append(issued, filepath.Join(x.dir, pki.IdentityFile))
	}
	return issued, nil
}
