//go:build linux

package userfile

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// As runs fn on a thread that accesses files as owner (setfsuid(2)) and has no capability, since
// one of them would grant more than the user may do: with CAP_SYS_PTRACE, for example, a thread
// follows the links of other users' processes in /proc. Root keeps CAP_DAC_OVERRIDE, which its
// tasks have as well. The thread ends with fn. A daemon that is not root runs fn as itself.
func As(owner Owner, fn func() error) error {
	if os.Geteuid() != 0 {
		return fn()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := become(owner); err != nil {
			result <- fmt.Errorf("access files as user %d: %w", owner.UID, err)
			return
		}
		result <- fn()
	}()
	return <-result
}

// become changes only this thread, hence the raw system calls.
func become(owner Owner) error {
	var first unsafe.Pointer
	if len(owner.Groups) > 0 {
		first = unsafe.Pointer(&owner.Groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(owner.Groups)), uintptr(first), 0); errno != 0 {
		return errno
	}
	// Both return the previous id, also where they refuse; fileID asks for the present one.
	unix.RawSyscall(unix.SYS_SETFSGID, uintptr(owner.GID), 0, 0)
	unix.RawSyscall(unix.SYS_SETFSUID, uintptr(owner.UID), 0, 0)
	if fileID(unix.SYS_SETFSGID) != owner.GID || fileID(unix.SYS_SETFSUID) != owner.UID {
		return errors.New("the kernel refused to switch to the user's identity")
	}
	return dropCapabilities(owner.UID == 0)
}

// fileID returns the thread's user or group id for files.
func fileID(call uintptr) uint32 {
	id, _, _ := unix.RawSyscall(call, ^uintptr(0), 0, 0)
	return uint32(id)
}

// dropCapabilities empties the thread's effective, permitted, inheritable and ambient sets;
// override keeps CAP_DAC_OVERRIDE where the thread has it.
func dropCapabilities(override bool) error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && err != unix.EINVAL {
		return err // EINVAL: a kernel without ambient capabilities
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // of the capabilities 0 to 31, and 32 to 63
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	keep := uint32(0)
	if override {
		keep = sets[0].Permitted & (1 << unix.CAP_DAC_OVERRIDE)
	}
	sets = [2]unix.CapUserData{{Effective: keep, Permitted: keep}}
	return unix.Capset(&header, &sets[0])
}
