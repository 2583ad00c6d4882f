//go:build linux

package simgpu

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Number returns the device number in the kernel's encoding for files.
func (d Device) Number() uint64 { return unix.Mkdev(d.Major, d.Minor) }

// OpenBy reports which devices the processes have open, by device number. It checks only files with
// the name of a simulated GPU, so that other files cost no more than reading their names and a hung
// file system never blocks it. Processes that cannot be inspected, such as ended ones, count as
// having none open. O(open files).
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
