package doctor

import (
	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/pkg/cluster"
)

// leastFree and lowFree are the limits of free space: controllers transfer leadership when their
// reserve (64 MiB) is used, and a log grows by some hundred MiB a day.
const (
	leastFree = 128 * cluster.MiB
	lowFree   = cluster.GiB
)

// writable returns why a folder cannot be written; also for root, since a file system may be
// mounted read-only.
func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// freeSpace returns the space that is free for users, and the size, of the file system that holds
// path.
func freeSpace(path string) (free, total cluster.Bytes, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, err
	}
	block := int64(s.Bsize)
	return cluster.Bytes(int64(s.Bavail) * block), cluster.Bytes(int64(s.Blocks) * block), nil
}
