// Package userfile opens paths that a user named, for a daemon with more rights than the user.
//
// As changes to the user's identity for files and drops every capability. The functions that open
// a path resolve it name by name and refuse a path that passes through a file system of the
// kernel, such as /proc: its links lead into other processes, whatever the modes of the folders on
// the way are. Every path that a user names goes through this package. It needs no openat2(2), so
// that the same code runs on every kernel.
package userfile

// Owner is a user as the kernel knows one.
type Owner struct {
	UID, GID uint32
	Groups   []uint32
}
