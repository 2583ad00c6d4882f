package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"sync"
	"time"
)

// ErrUnknownUser marks a uid for which this host knows no name.
var ErrUnknownUser = errors.New("user has no name on this host")

// How long names are remembered, and how many. A renamed user is seen within a minute; a new one
// within seconds.
const (
	nameLife    = time.Minute
	unknownLife = 5 * time.Second
	maxNames    = 16 << 10
	lookupTime  = 3 * time.Second
)

// Names finds user names by uid: first in /etc/passwd, then through getent, which asks the sources
// of nsswitch.conf (LDAP, SSSD). Static programs cannot ask those themselves. Safe for concurrent
// use.
type Names struct {
	mu    sync.Mutex
	known map[uint32]knownName
}

type knownName struct {
	name  string // "" means that the uid has none
	until time.Time
}

// NewNames returns an empty cache.
func NewNames() *Names { return &Names{known: make(map[uint32]knownName)} }

// Name returns the name of uid, or an error that wraps ErrUnknownUser. It blocks for at most a few
// seconds, while a directory service is slow.
func (n *Names) Name(ctx context.Context, uid uint32) (string, error) {
	now := time.Now()
	n.mu.Lock()
	k, ok := n.known[uid]
	n.mu.Unlock()
	if !ok || now.After(k.until) {
		name, err := lookup(ctx, uid)
		if err != nil {
			return "", err // the directory did not answer: remember nothing
		}
		k = knownName{name, now.Add(nameLife)}
		if name == "" {
			k.until = now.Add(unknownLife)
		}
		n.remember(uid, k)
	}
	if k.name == "" {
		return "", fmt.Errorf("%w: uid %d", ErrUnknownUser, uid)
	}
	return k.name, nil
}

func (n *Names) remember(uid uint32, k knownName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) >= maxNames {
		clear(n.known) // the simplest bound; they are soon cached again
	}
	n.known[uid] = k
}

// lookup returns "" for a uid without a name.
func lookup(ctx context.Context, uid uint32) (string, error) {
	text := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(text); err == nil {
		return u.Username, nil
	}
	getent, err := exec.LookPath("getent")
	if err != nil {
		return "", nil // a host without it has no directory service either
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, getent, "passwd", text).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // getent(1): key not found
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up uid %s with getent: %w", text, errors.Join(err, ctx.Err()))
	}
	fields := bytes.Split(bytes.TrimSpace(out), []byte(":"))
	if len(fields) < 3 || string(fields[2]) != text {
		return "", fmt.Errorf("look up uid %s with getent: answer is not a passwd entry", text)
	}
	return string(fields[0]), nil
}
