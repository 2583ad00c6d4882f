package agent

import (
	"bytes"
	"context"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// accountKept is how long a user's entry stays cached.
	accountKept = time.Minute
	// accountTimeout is the timeout of a query to a directory service.
	accountTimeout = 10 * time.Second
	// maxAccounts limits the number of cached users.
	maxAccounts = 1024
)

// account holds the node's data about a user. The controllers send uid and gid; the node adds
// groups, home and shell from its own databases. A user whom the node does not know runs with their
// gid only.
type account struct {
	home, shell string
	groups      []uint32
	asked       time.Time
}

// accounts caches users.
type accounts struct {
	mu    sync.Mutex
	known map[uint64]account // by uid and gid
}

func newAccounts() *accounts { return &accounts{known: map[uint64]account{}} }

// of looks up a user by uid.
func (a *accounts) of(ctx context.Context, uid, gid uint32) account {
	key := uint64(uid)<<32 | uint64(gid)
	a.mu.Lock()
	found, ok := a.known[key]
	a.mu.Unlock()
	if ok && time.Since(found.asked) < accountKept {
		return found
	}
	found = lookUp(ctx, uid, gid)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= maxAccounts {
		clear(a.known)
	}
	a.known[key] = found
	return found
}

// lookUp reads the files of this host and then, for users of a directory service, calls getent(1),
// which is the only way for a static program.
func lookUp(ctx context.Context, uid, gid uint32) account {
	found := account{groups: []uint32{gid}, asked: time.Now()}
	id := strconv.FormatUint(uint64(uid), 10)
	entry := getent(ctx, "passwd", id)
	if len(entry) < 7 {
		if known, err := user.LookupId(id); err == nil {
			entry = []string{known.Username, "", id, "", "", known.HomeDir, "/bin/sh"}
		}
	}
	if len(entry) < 7 {
		return found
	}
	found.home, found.shell = entry[5], entry[6]
	for _, group := range strings.Fields(strings.Join(getent(ctx, "initgroups", entry[0]), " ")) {
		if n, err := strconv.ParseUint(group, 10, 32); err == nil && uint32(n) != gid {
			found.groups = append(found.groups, uint32(n))
		}
	}
	if len(found.groups) > 1 {
		return found
	}
	if known, err := user.LookupId(id); err == nil {
		ids, err := known.GroupIds()
		for _, group := range ids {
			if n, errNumber := strconv.ParseUint(group, 10, 32); err == nil && errNumber == nil && uint32(n) != gid {
				found.groups = append(found.groups, uint32(n))
			}
		}
	}
	return found
}

// getent returns the fields of one entry; nil if it does not exist.
func getent(ctx context.Context, database, key string) []string {
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "getent", database, key).Output()
	line, _, _ := bytes.Cut(out, []byte("\n"))
	if err != nil || len(line) == 0 {
		return nil
	}
	return strings.Split(string(line), ":")
}
