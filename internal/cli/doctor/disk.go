package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/pkg/cluster"
)

// How little room makes trouble: controllers give up leadership when theirs is used
// up to what they set aside (64 MiB), and a log grows by some hundred MiB a day.
const (
	leastRoom = 128 * cluster.MiB
	lowRoom   = cluster.GiB
)

// rough is an amount for people, to a tenth of the unit.
func rough(b cluster.Bytes) string {
	if b < cluster.GiB {
		return fmt.Sprintf("%.1f MiB", float64(b)/float64(cluster.MiB))
	}
	return fmt.Sprintf("%.1f GiB", float64(b)/float64(cluster.GiB))
}

// writable returns why nothing can be written into a folder; also as root, for whom
// a file system may still be mounted for reading only.
func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// room is what is free for users, and the size, of the file system that holds path.
func room(path string) (free, total cluster.Bytes, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, err
	}
	block := int64(s.Bsize)
	return cluster.Bytes(int64(s.Bavail) * block), cluster.Bytes(int64(s.Blocks) * block), nil
}
