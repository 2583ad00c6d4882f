//go:build linux

package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	dockerconfig "github.com/containerd/containerd/v2/core/remotes/docker/config"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"

	"github.com/greylag/greylag/internal/image"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/userfile"
)

// Passwords for registries never travel with a job, whose record is on all controllers. They are
// read on the node that pulls the image: first the user's own files, with the user's identity, then
// the node's, which only root may read.

// logins lists the files that may have credentials, in order of precedence.
type logins []image.Credentials

// loginsOf reads the user's files and the node's.
func (r *Runtime) loginsOf(ctx context.Context, request runtime.FetchRequest) (logins, error) {
	all, err := userLogins(ctx, request)
	if err != nil || r.config.Logins == "" {
		return all, err
	}
	own, err := nodeLogins(r.config.Logins)
	if err != nil {
		return nil, err
	}
	return append(all, own), nil
}

// userLogins reads files with the user's rights. A home directory that hangs blocks a goroutine,
// not the caller.
func userLogins(ctx context.Context, request runtime.FetchRequest) (logins, error) {
	type answer struct {
		found logins
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		a.err = userfile.As(request.Owner, func() error {
			for _, path := range request.Logins {
				c, err := readLogins(path, func(os.FileInfo) error { return nil })
				if errors.Is(err, image.ErrCredentials) {
					return fmt.Errorf("%s: %w", path, err)
				}
				if err == nil { // otherwise the user has none there, or none that is readable
					a.found = append(a.found, c)
				}
			}
			return nil
		})
		done <- a
	}()
	select {
	case a := <-done:
		return a.found, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read %v: %w", request.Logins, ctx.Err())
	}
}

// nodeLogins reads the file named in the configuration.
func nodeLogins(path string) (image.Credentials, error) {
	c, err := readLogins(path, func(info os.FileInfo) error {
		if info.Mode().Perm()&0o077 != 0 || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
			return errors.New("the file must belong to root and be readable only by root: chown root, chmod 600")
		}
		return nil
	})
	if err != nil {
		return c, fmt.Errorf("registry logins %s: %w", path, err)
	}
	return c, nil
}

// readLogins reads one file that passes check. It skips files that are not regular, and does not
// block.
func readLogins(path string, check func(os.FileInfo) error) (image.Credentials, error) {
	file, err := userfile.OpenRegular(path)
	if errors.Is(err, userfile.ErrNotRegular) {
		err = fmt.Errorf("%w: %w", image.ErrCredentials, err)
	}
	if err != nil {
		return image.Credentials{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return image.Credentials{}, err
	}
	if err := check(info); err != nil {
		return image.Credentials{}, err
	}
	data, err := io.ReadAll(io.LimitReader(file, image.MaxCredentials+1))
	if err != nil {
		return image.Credentials{}, err
	}
	return image.ParseCredentials(data)
}

// of returns the credentials for a reference, or for a mirror of its registry. Credentials of
// another user than the reference names do not count.
func (l logins) of(name, user string) image.Login {
	for _, c := range l {
		if login, ok := c.For(name); ok && (user == "" || login.User == user || login.User == "") {
			return login
		}
	}
	return image.Login{User: user}
}

// resolver returns a resolver for the reference's registry or its mirrors from the site's
// hosts.toml, with the credentials of each. Registries on this machine are contacted without TLS,
// as every client does.
func (r *Runtime) resolver(ctx context.Context, ref image.Reference, known logins) remotes.Resolver {
	registry := image.Host(ref.Name)
	credentials := func(host string) (string, string, error) {
		login := known.of(host, "")
		if host == registry || registry == "docker.io" && host == "registry-1.docker.io" {
			login = known.of(ref.Name, ref.User)
		}
		return login.User, login.Secret, nil
	}
	options := dockerconfig.HostOptions{Credentials: credentials}
	if r.config.HostsDir != "" {
		options.HostDir = dockerconfig.HostDirFromRoot(r.config.HostsDir)
	}
	return docker.NewResolver(docker.ResolverOptions{Hosts: dockerconfig.ConfigureHosts(ctx, options)})
}

// ofRegistry marks transient errors of a registry or the network. Errors about the image or the
// credentials stay unchanged, and so does an unknown host name.
func ofRegistry(err error) error {
	var status remoteerrors.ErrUnexpectedStatus
	var name *net.DNSError
	var network *net.OpError
	var timed net.Error
	passes := false
	switch {
	case errors.As(err, &status):
		passes = status.StatusCode >= http.StatusInternalServerError ||
			status.StatusCode == http.StatusTooManyRequests || status.StatusCode == http.StatusRequestTimeout
	case errors.As(err, &name):
		passes = !name.IsNotFound
	case errors.As(err, &network):
		passes = network.Op != "remote error" // crypto/tls reports a refusal by the other side like this
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		passes = true // connection closed
	case errors.As(err, &timed):
		passes = timed.Timeout()
	}
	if passes {
		return fmt.Errorf("%w: %w", runtime.ErrRegistry, err)
	}
	return err
}
