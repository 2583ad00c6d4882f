//go:build linux

package ginit

import (
	"syscall"
	"unsafe"
)

// The filter is installed here, not by the OCI runtime: libseccomp takes 17 to
// 22 ms of processor time for each container to compile the same profile, this
// less than one, and a runc built without libseccomp does as well.
//
// It refuses what containerd's default profile refuses, except the NUMA calls
// (mbind, set_mempolicy, move_pages, …), which act on the caller's own memory
// and which numactl and MPI need; pidfd_getfd, which the kernel allows between
// processes of one user that may trace each other and which NVSHMEM needs; and
// chroot, which needs a capability anyway. It is a list of refusals up to the
// last call known when it was made: anything later does not exist for a task.

// instructionSet is one way to enter the kernel on this machine.
type instructionSet struct {
	audit uint32 // AUDIT_ARCH_*
	last  uint32 // highest call known

	clone, clone3, personality, socket uint32
	denied                             []uint32
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

	// namespaces are the CLONE_NEW* flags of clone(2): an unprivileged user
	// becomes root in a new user namespace, with all the kernel's code that
	// only root is meant to reach.
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

// rules answer every call of one instruction set.
func (s instructionSet) rules() []syscall.SockFilter {
	code := []syscall.SockFilter{{Code: loadWord, K: offsetCall}}
	// on adds: if the test holds, this answer.
	on := func(test uint16, k, result uint32) {
		code = append(code, syscall.SockFilter{Code: test, K: k, Jf: 1}, syscall.SockFilter{Code: answer, K: result})
	}
	on(jumpGreater, s.last, enosys()) // x32's numbers too
	on(jumpEqual, s.clone3, enosys()) // its flags are behind a pointer; libc falls back to clone
	for _, call := range s.denied {
		on(jumpEqual, call, eperm())
	}
	code = append(code, argument(s.clone, namespaceRules())...)
	code = append(code, argument(s.personality, personalityRules())...)
	code = append(code, argument(s.socket, socketRules())...)
	return append(code, syscall.SockFilter{Code: answer, K: allow})
}

// argument applies rules about the first argument of one call. The rules must
// answer.
func argument(call uint32, rules []syscall.SockFilter) []syscall.SockFilter {
	code := []syscall.SockFilter{
		{Code: jumpEqual, K: call, Jt: 1},
		{Code: jumpAlways, K: uint32(len(rules) + 1)},
		{Code: loadWord, K: offsetArg0},
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

// personalityRules allow Linux, with or without 16-bit uids and the old mmap
// layout's switch, and asking (personality(2)); not turning off randomisation.
func personalityRules() []syscall.SockFilter {
	var code []syscall.SockFilter
	for _, value := range []uint32{0, 0x8, 0x20000, 0x20008, 0xffffffff} {
		code = append(code, syscall.SockFilter{Code: jumpEqual, K: value, Jf: 1}, syscall.SockFilter{Code: answer, K: allow})
	}
	return append(code, syscall.SockFilter{Code: answer, K: eperm()})
}

// socketRules refuse AF_ALG (38), AF_VSOCK (40) and families not yet known.
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

// confine puts the filter on this thread; what it starts inherits it. The
// caller has locked the thread.
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
