// Package runas starts programs of the site as users of their own.
//
// It decides the credential of such a program. It never decides which program runs, and never changes the user of this
// process.
package runas

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Credential returns the credential of a user, by name or uid, with the primary group only; nil for the user of this
// process. Root is refused.
func Credential(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, fmt.Errorf("the user %q is not in /etc/passwd of the controller", name)
		}
	}
	uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(errUID, errGID); err != nil {
		return nil, err
	}
	switch {
	case int(uid) == os.Geteuid():
		return nil, nil
	case uid == 0:
		return nil, fmt.Errorf("the user %q is root", name)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// DropAmbient drops the ambient capabilities of this process, which a program of another user would
// inherit. The process keeps its other capabilities.
func DropAmbient(log *slog.Logger) {
	_, _, errno := syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0)
	if errno != 0 {
		log.Error("cannot drop ambient capabilities; programs of the site may inherit them", "err", errno)
	}
}
