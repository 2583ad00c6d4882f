package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/checkpoint"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// secretsFolder is the directory of a task's secrets, in that of its socket.
const secretsFolder = "secrets"

// secretsEnv is the variable with the path of that directory.
const secretsEnv = "GREYLAG_SECRETS_DIR"

// addSecrets gives a task its secrets as files that only its user can read. They are next to the task's
// socket, and are removed with it: at the end of the task, or by the next daemon. host and inside are the
// paths of the socket's directory on the node and in the task.
func (a *Agent) addSecrets(ctx context.Context, spec *tasks.Spec, l *launch, host, inside string) error {
	if !l.spec.GetSecrets() {
		return nil
	}
	if host == "" {
		return failed(cluster.NodeFault, "node %s cannot provide secrets: gnoded has no socket directory for tasks", l.node)
	}
	l.setWaitingFor("its secrets have not been fetched yet")
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := a.session.Secrets(limited, &greylagv1.GetSecretsRequest{Job: l.spec.GetJob(), Attempt: l.spec.GetAttempt(), Granted: l.spec.GetGranted()})
	if lost := (*connect.Error)(nil); errors.As(err, &lost) && lost.Code() == connect.CodeDataLoss {
		return failed(cluster.LaunchFailed, "%s", lost.Message())
	}
	if err != nil {
		return fmt.Errorf("%w: fetch secrets: %w", errPostpone, err)
	}
	if err := writeSecrets(filepath.Join(host, secretsFolder), response.GetSecrets(), spec.Owner); err != nil {
		return err
	}
	spec.Env = append(spec.Env, secretsEnv+"="+filepath.Join(inside, secretsFolder))
	chosen := slices.ContainsFunc(spec.Env, func(setting string) bool { return strings.HasPrefix(setting, checkpoint.CredentialsVariable+"=") })
	given := slices.ContainsFunc(response.GetSecrets(), func(s *greylagv1.SecretValue) bool { return s.GetName() == credentialsSecret })
	if given && !chosen {
		spec.Env = append(spec.Env, checkpoint.CredentialsVariable+"="+filepath.Join(inside, secretsFolder, credentialsSecret))
		l.credentials = filepath.Join(host, secretsFolder, credentialsSecret)
	}
	return nil
}

// writeSecrets replaces a directory by one with these secrets, which only the owner can read.
func writeSecrets(dir string, secrets []*greylagv1.SecretValue, owner tasks.Owner) error {
	if err := checkInMemory(filepath.Dir(dir)); err != nil {
		return err
	}
	own := func(path string) error {
		if os.Geteuid() != 0 {
			return nil
		}
		return os.Lchown(path, int(owner.UID), int(owner.GID))
	}
	err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
	for _, s := range secrets {
		if err == nil && !cluster.ValidObjectName(s.GetName()) { // it would be a path
			err = fmt.Errorf("%.64q cannot name a secret", s.GetName())
		}
		path := filepath.Join(dir, s.GetName())
		if err == nil {
			err = os.WriteFile(path, s.GetValue(), 0o400)
		}
		if err == nil {
			err = own(path)
		}
	}
	if err == nil {
		err = own(dir) // last: until then its user cannot change anything in it
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write secrets: %w", err), os.RemoveAll(dir))
	}
	return nil
}

// checkInMemory refuses a directory that is not on a tmpfs: secrets must not be written to a disk.
func checkInMemory(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}
	if fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC {
		return failed(cluster.NodeFault, "cannot store secrets: %s is not on a tmpfs; set state_dir in gnoded.toml to a directory on a tmpfs", dir)
	}
	return nil
}
