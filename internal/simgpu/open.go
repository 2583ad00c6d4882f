//go:build linux

package simgpu

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Number is the device's number as the kernel tells it of a file.
func (d Device) Number() uint64 { return unix.Mkdev(d.Major, d.Minor) }

// OpenBy tells which devices the processes have open, by their numbers. Only
// files that are called like one are looked at, so that any other costs no more
// than reading its name, and never waits for a file system that hangs. What
// cannot be looked at, as of a process that has ended, is not open.
// O(open files).
func OpenBy(pids []int) map[uint64]bool {
	open := map[uint64]bool{}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		files, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, file := range files {
			path := dir + "/" + file.Name()
			name, err := os.Readlink(path)
			if err != nil || !strings.Contains(name, "/nvidia") {
				continue
			}
			var stat unix.Statx_t
			err = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat)
			if err == nil && stat.Mode&unix.S_IFMT == unix.S_IFCHR {
				open[unix.Mkdev(stat.Rdev_major, stat.Rdev_minor)] = true
			}
		}
	}
	return open
}
