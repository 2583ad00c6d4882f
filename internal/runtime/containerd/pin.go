//go:build linux

package containerd

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/runtime"
)

// pinPlace is where a folder that a task is shown is held while the task starts:
// a mount of its own, beside the clone of the host's file system and out of
// everybody's sight like it. What a daemon that was killed left there goes with
// the clone.
func pinPlace(stateDir string, id runtime.TaskID, i int) string {
	return filepath.Join(holder(stateDir), fmt.Sprintf("%s.%d", id, i))
}

// pinFolder mounts on place the folder or file that path is now, if the owner can get to
// it. A descriptor alone would not do: the OCI runtime mounts inside the task's
// mount namespace, where a mount of this one cannot be the source.
func pinFolder(owner runtime.Owner, path, place string) error {
	fd := -1
	err := asUser(owner, func() (err error) {
		fd, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrInvalid, err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.MkdirAll(place, 0o700)
	} else {
		err = os.WriteFile(place, nil, 0o600)
	}
	if err != nil {
		return err
	}
	opened := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := unix.Mount(opened, place, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	// A slave: taking it away must not take away what is mounted below the folder.
	return unix.Mount("", place, "", unix.MS_SLAVE|unix.MS_REC, "")
}

// unpinFolder takes the mount away, in whatever state pinFolder left it. Tasks
// that were shown it keep it.
func unpinFolder(place string) {
	_ = unix.Unmount(place, unix.MNT_DETACH) // it may never have been mounted
	_ = os.Remove(place)                     // an empty folder of ours does no harm
}
