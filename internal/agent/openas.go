package agent

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	tasks "github.com/greylag/greylag/internal/runtime"
)

// openAs opens a regular file for reading on a thread whose file accesses the
// kernel checks as the owner's (setfsuid(2)): a path that a user named, links
// and all, reaches no further with us than with them. The thread ends with the
// goroutine, which never unlocks it. A daemon that is not root opens as itself.
func openAs(owner tasks.Owner, path string) (*os.File, error) {
	if os.Geteuid() != 0 {
		return openRegular(path)
	}
	type result struct {
		file *os.File
		err  error
	}
	opened := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		if err := takeIdentity(owner); err != nil {
			opened <- result{nil, err}
			return
		}
		file, err := openRegular(path)
		opened <- result{file, err}
	}()
	r := <-opened
	return r.file, r.err
}

// openRegular refuses what is no plain file: a FIFO would block its reader for
// ever, a device do whatever it does.
func openRegular(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a plain file", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// takeIdentity changes this thread alone, hence the raw calls.
func takeIdentity(owner tasks.Owner) error {
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
