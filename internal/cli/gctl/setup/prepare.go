package setup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
)

// packages names the package of each daemon.
var packages = map[string]string{"gctld": "greylag-controller", "gnoded": "greylag-node", "gauthd": "greylag-client"}

// requireInstalled returns an error unless a daemon is installed on this host.
func requireInstalled(program string) error {
	if _, err := tool.FindProgram(program); err == nil {
		return nil
	}
	return hint.New(fmt.Errorf("%s is not installed on this host", program), "install the package "+packages[program])
}

// checkInstalled refuses a token whose daemon is not installed here.
func (j joining) checkInstalled(program string) error {
	err := requireInstalled(program)
	if err == nil {
		return nil
	}
	others := map[pki.Role]string{
		pki.RoleNode:       "a login node needs a token of gctl cluster token --auth, a controller one of --controller",
		pki.RoleController: "a login node needs a token of gctl cluster token --auth, a compute node one of --node",
		pki.RoleAuth:       "a compute node needs a token of gctl cluster token --node, a controller one of --controller",
	}
	return hint.New(fmt.Errorf("the token is for a %s, but %w", roleText(j.token.Role), err), hint.Of(err)+"; "+others[j.token.Role])
}

// checkHost refuses to join a host that cannot take the role. The controller was not asked yet, so the
// token remains valid.
func (j joining) checkHost(at place) error {
	if _, err := pki.OpenCA(at.pkiDir); err == nil && j.token.Role == pki.RoleController {
		return hint.New(fmt.Errorf("this host is already a controller: %s holds a CA", at.pkiDir), "to join again, move the directory and data_dir away")
	}
	if err := j.checkInstalled(at.daemon.program); err != nil {
		return err
	}
	return checkWritable(j.directories(at)...)
}

// roleText returns a role in words.
func roleText(role pki.Role) string {
	if role == pki.RoleAuth {
		return "login node"
	}
	return string(role)
}

// checkWritable returns an error if this user cannot create files in one of the directories or, if a
// directory is missing, create it. It changes nothing.
func checkWritable(dirs ...string) error {
	for _, dir := range dirs {
		at := existing(dir)
		err := error(unix.ENOTDIR)
		if info, e := os.Stat(at); e != nil || info.IsDir() {
			err = unix.Access(at, unix.W_OK|unix.X_OK)
		}
		if err == nil {
			continue
		}
		err = fmt.Errorf("cannot write to %s: %w", at, err)
		if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
			return hint.New(err, "run this command as root")
		}
		return hint.New(err, "this command writes its files there: mount it read-write, or name another directory")
	}
	return nil
}

// existing returns the nearest existing parent of a path, or the path itself.
func existing(path string) string {
	for {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// directories returns the directories in which gctl join writes.
func (j joining) directories(at place) []string {
	standard := map[string]string{"gctld": config.ControllerPath, "gnoded": config.NodePath, "gauthd": config.AuthPath}
	dirs := []string{at.pkiDir, filepath.Dir(cmp.Or(j.config, standard[at.daemon.program])), filepath.Dir(j.client), filepath.Dir(config.ControllersPath(j.client)), filepath.Dir(j.ca)}
	if at.dataDir != "" {
		dirs = append(dirs, at.dataDir)
	}
	if j.leased.file != "" {
		dirs = append(dirs, filepath.Dir(at.leaseFile))
	}
	return dirs
}
