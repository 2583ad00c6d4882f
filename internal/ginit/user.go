//go:build linux

package ginit

import (
	"syscall"
	"unsafe"
)

// asUser runs fn with the effective identity of the order's user on this thread, so that every
// permission check of the kernel uses the user's rights. The caller has locked the thread. Leaving
// effective UID 0 clears the effective capabilities, and returning to it restores them
// (capabilities(7)).
func asUser(order *Order, fn func() *failure) *failure {
	if !order.Become {
		return fn()
	}
	if err := switchTo(order.UID, order.GID, order.Groups); err != nil {
		return &failure{ExitOrder, "cannot become the user: " + reason(err)}
	}
	failed := fn()
	if err := switchBack(); err != nil {
		return &failure{ExitOrder, "cannot return from the user: " + reason(err)}
	}
	return failed
}

const unchanged = ^uintptr(0)

// switchTo sets groups, group and user, in the order in which the right to do so is lost. It uses
// raw system calls: package syscall would change all threads.
func switchTo(uid, gid uint32, groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, unchanged, uintptr(gid), unchanged); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, unchanged, uintptr(uid), unchanged); errno != 0 {
		return errno
	}
	return nil
}

func switchBack() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, unchanged, 0, unchanged); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, unchanged, 0, unchanged); errno != 0 {
		return errno
	}
	return nil
}
