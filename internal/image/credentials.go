package image

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrCredentials means that a file is not what `podman login` or `docker login` writes.
var ErrCredentials = errors.New("not a file of registry credentials")

// MaxCredentials is the maximum size of such a file in bytes.
const MaxCredentials = 1 << 20

// Credentials holds logins to registries in the form of containers-auth.json(5): for a registry, or
// for the images below a path in it.
type Credentials struct {
	logins map[string]Login
}

// Login is a name and a password; without a name the secret is a token.
type Login struct{ User, Secret string }

// ParseCredentials parses ~/.config/containers/auth.json or ~/.docker/config.json. Credentials kept
// by a helper program are not in it and are not found. Errors contain nothing of the content.
// O(bytes).
func ParseCredentials(data []byte) (Credentials, error) {
	var file struct {
		Auths map[string]struct {
			Auth, IdentityToken string
			Username, Password  string
		} `json:"auths"`
	}
	if len(data) > MaxCredentials {
		return Credentials{}, fmt.Errorf("%w: larger than %d bytes", ErrCredentials, MaxCredentials)
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return Credentials{}, fmt.Errorf("%w: it is not JSON of that form", ErrCredentials)
	}
	c := Credentials{logins: map[string]Login{}}
	for key, entry := range file.Auths {
		login := Login{entry.Username, entry.Password}
		if entry.Auth != "" {
			plain, err := base64.StdEncoding.DecodeString(entry.Auth)
			if err != nil {
				return Credentials{}, fmt.Errorf("%w: the entry for %q is not base64", ErrCredentials, key)
			}
			login.User, login.Secret, _ = strings.Cut(strings.TrimRight(string(plain), "\x00"), ":")
		}
		if entry.IdentityToken != "" {
			login = Login{Secret: entry.IdentityToken}
		}
		if login != (Login{}) {
			c.logins[scopeOf(key)] = login
		}
	}
	return c, nil
}

// scopeOf returns the key of an entry without docker's decoration: "https://index.docker.io/v1/" is
// docker.io.
func scopeOf(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	for _, suffix := range []string{"/", "/v1", "/v2"} {
		key = strings.TrimSuffix(key, suffix)
	}
	switch key {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return key
}

// For returns the login for the full name of a reference or the host of a registry: the entry with
// the longest path that is a prefix.
func (c Credentials) For(name string) (Login, bool) {
	name, _, _ = strings.Cut(name, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') && strings.Contains(name, "/") {
		name = name[:colon]
	}
	for scope := name; scope != ""; {
		if login, ok := c.logins[scopeOf(scope)]; ok {
			return login, true
		}
		slash := strings.LastIndexByte(scope, '/')
		if slash < 0 {
			break
		}
		scope = scope[:slash]
	}
	return Login{}, false
}

// Host returns the registry of a full reference.
func Host(name string) string {
	host, _, _ := strings.Cut(name, "/")
	return host
}
