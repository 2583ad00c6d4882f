//go:build linux

package ginit

import (
	"syscall"
	"unsafe"
)

// ginit installs the filter, not the OCI runtime: libseccomp uses 17 to 22 ms of processor time to
// compile the same profile for each container, this code less than one, and it also works with a
// runc without libseccomp.
//
// It refuses changes of a file's project ID, and what containerd's default profile refuses, with three
// exceptions of that profile: the NUMA calls (mbind, set_mempolicy, move_pages, …), which act on the caller's own memory and which numactl
// and MPI need; pidfd_getfd, which the kernel allows between processes of one user that may trace
// each other and which NVSHMEM needs; and chroot, which needs a capability anyway. The list covers
// all calls that were known when it was written; later calls do not exist for a task.

// instructionSet is one system call interface of this machine.
type instructionSet struct {
	audit uint32 // AUDIT_ARCH_*
	last  uint32 // highest known call

	clone, clone3, ioctl, personality, socket uint32
	denied                                    []uint32
}

// Classic BPF (linux/filter.h) and seccomp (linux/seccomp.h, seccomp(2)).
const (
	loadWord    = 0x20 // BPF_LD | BPF_W | BPF_ABS
	jumpAlways  = 0x05 // BPF_JMP | BPF_JA
	jumpEqual   = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
	jumpGreater = 0x25 // BPF_JMP | BPF_JGT | BPF_K
	jumpAnyBit  = 0x45 // BPF_JMP | BPF_JSET | BPF_K
	answer      = 0x06 // BPF_RET | BPF_K

	allow  = 0x7fff0000 // SECCOMP_RET_ALLOW
	denial = 0x00050000 // SECCOMP_RET_ERRNO, with the errno in the low bits

	offsetCall = 0  // of seccomp_data.nr
	offsetArch = 4  // .arch
	offsetArg0 = 16 // .args[0], low half on little-endian machines
	offsetArg1 = 24 // .args[1], low half

	// namespaces are the CLONE_NEW* flags of clone(2): an unprivileged user becomes root in a new
	// user namespace and reaches kernel code that only root should.
	namespaces = 0x7e020000
)

func eperm() uint32  { return denial | uint32(syscall.EPERM) }
func enosys() uint32 { return denial | uint32(syscall.ENOSYS) }

// program compiles the filter. O(calls).
func program(sets []instructionSet) []syscall.SockFilter {
	code := []syscall.SockFilter{{Code: loadWord, K: offsetArch}}
	for _, set := range sets {
		body := set.rules()
		code = append(code,
			syscall.SockFilter{Code: jumpEqual, K: set.audit, Jt: 1},
			syscall.SockFilter{Code: jumpAlways, K: uint32(len(body))})
		code = append(code, body...)
	}
	return append(code, syscall.SockFilter{Code: answer, K: enosys()})
}

// rules returns the instructions for every call of one instruction set.
func (s instructionSet) rules() []syscall.SockFilter {
	code := []syscall.SockFilter{{Code: loadWord, K: offsetCall}}
	// on adds a rule: if the test holds, return this result.
	on := func(test uint16, k, result uint32) {
		code = append(code, syscall.SockFilter{Code: test, K: k, Jf: 1}, syscall.SockFilter{Code: answer, K: result})
	}
	on(jumpGreater, s.last, enosys()) // includes the numbers of x32
	on(jumpEqual, s.clone3, enosys()) // its flags are in memory; libc falls back to clone
	for _, call := range s.denied {
		on(jumpEqual, call, eperm())
	}
	code = append(code, argument(s.clone, offsetArg0, namespaceRules())...)
	code = append(code, argument(s.ioctl, offsetArg1, ioctlRules())...)
	code = append(code, argument(s.personality, offsetArg0, personalityRules())...)
	code = append(code, argument(s.socket, offsetArg0, socketRules())...)
	return append(code, syscall.SockFilter{Code: answer, K: allow})
}

// argument applies rules about one argument of one call. The rules must return a result.
func argument(call, offset uint32, rules []syscall.SockFilter) []syscall.SockFilter {
	code := []syscall.SockFilter{
		{Code: jumpEqual, K: call, Jt: 1},
		{Code: jumpAlways, K: uint32(len(rules) + 1)},
		{Code: loadWord, K: offset},
	}
	return append(code, rules...)
}

func namespaceRules() []syscall.SockFilter {
	return []syscall.SockFilter{
		{Code: jumpAnyBit, K: namespaces, Jf: 1},
		{Code: answer, K: eperm()},
		{Code: answer, K: allow},
	}
}

// setFileAttributes is FS_IOC_FSSETXATTR of linux/fs.h.
const setFileAttributes = 0x401c5820

// ioctlRules refuse changes of a file's project ID, which would charge the file to the quota of another job.
// The kernel ignores the high half of the argument.
func ioctlRules() []syscall.SockFilter {
	return []syscall.SockFilter{
		{Code: jumpEqual, K: setFileAttributes, Jf: 1},
		{Code: answer, K: eperm()},
		{Code: answer, K: allow},
	}
}

// personalityRules allow Linux, with or without 16-bit UIDs and the old mmap layout, and queries
// (personality(2)), but not switching off address space randomisation.
func personalityRules() []syscall.SockFilter {
	var code []syscall.SockFilter
	for _, value := range []uint32{0, 0x8, 0x20000, 0x20008, 0xffffffff} {
		code = append(code, syscall.SockFilter{Code: jumpEqual, K: value, Jf: 1}, syscall.SockFilter{Code: answer, K: allow})
	}
	return append(code, syscall.SockFilter{Code: answer, K: eperm()})
}

// socketRules refuse AF_ALG (38), AF_VSOCK (40) and unknown families.
func socketRules() []syscall.SockFilter {
	return []syscall.SockFilter{
		{Code: jumpEqual, K: 38, Jt: 3},
		{Code: jumpEqual, K: 40, Jt: 2},
		{Code: jumpGreater, K: 45, Jt: 1},
		{Code: answer, K: allow},
		{Code: answer, K: eperm()},
	}
}

const (
	prSetSeccomp    = 22 // prctl(2)
	prSetNoNewPrivs = 38
	modeFilter      = 2
)

// confine installs the filter on this thread, which must be locked; processes that it starts
// inherit it.
func confine() error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	code := program(instructionSets())
	filter := syscall.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetSeccomp, modeFilter, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return errno
	}
	return nil
}
