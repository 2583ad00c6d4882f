//go:build linux

package containerd

import (
	"errors"
	"os"
	goruntime "runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/runtime"
)

// asUser runs fn on a thread whose file accesses the kernel checks as the
// owner's (setfsuid(2)), since a path that a user names must not reach further
// with us than with them. The thread is not used again: the goroutine ends
// without unlocking it. As root itself, fn just runs.
func asUser(owner runtime.Owner, fn func() error) error {
	if owner.UID == 0 || os.Geteuid() != 0 {
		return fn()
	}
	result := make(chan error, 1)
	go func() {
		goruntime.LockOSThread()
		if err := takeFileIdentity(owner); err != nil {
			result <- err
			return
		}
		result <- fn()
	}()
	return <-result
}

// takeFileIdentity changes this thread alone, hence the raw calls.
func takeFileIdentity(owner runtime.Owner) error {
	var first unsafe.Pointer
	if len(owner.Groups) > 0 {
		first = unsafe.Pointer(&owner.Groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(owner.Groups)), uintptr(first), 0); errno != 0 {
		return errno
	}
	// Both return the former id, and refuse by not changing it: ask again.
	unix.RawSyscall(unix.SYS_SETFSGID, uintptr(owner.GID), 0, 0)
	unix.RawSyscall(unix.SYS_SETFSUID, uintptr(owner.UID), 0, 0)
	gid, _, _ := unix.RawSyscall(unix.SYS_SETFSGID, ^uintptr(0), 0, 0)
	uid, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ^uintptr(0), 0, 0)
	if uint32(gid) != owner.GID || uint32(uid) != owner.UID {
		return errors.New("cannot take the user's identity for files")
	}
	return nil
}
