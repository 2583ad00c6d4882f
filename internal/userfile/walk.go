//go:build linux

package userfile

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is the kernel's own limit (path_resolution(7)).
const maxLinks = 40

// kernelFiles lists file systems that hold no user files. Reading from one may reveal data of the
// kernel or of the reading process.
var kernelFiles = []uint32{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.NSFS_MAGIC,
	unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC,
	unix.BPF_FS_MAGIC, unix.PSTOREFS_MAGIC, unix.EFIVARFS_MAGIC, unix.BINFMTFS_MAGIC, unix.DEVPTS_SUPER_MAGIC,
	unix.RDTGROUP_SUPER_MAGIC, unix.PIPEFS_MAGIC, unix.SOCKFS_MAGIC, unix.ANON_INODE_FS_MAGIC,
	0x62656570, // configfs
	0x19800202, // mqueue
}

// walk resolves a path name by name. It holds every directory from the top down to the current one,
// so that ".." leads to the directory it came from even if that one is moved meanwhile.
type walk struct {
	tops   []string
	stack  []opened // the first is a top
	left   []string // names still to resolve
	links  []Link
	passed []uint64 // devices of allowed file systems
}

type opened struct {
	fd   int
	name string // of the first, its whole path
}

func newWalk(tops ...string) *walk { return &walk{tops: tops} }

func (w *walk) close() {
	for _, o := range w.stack {
		_ = unix.Close(o.fd)
	}
	w.stack = nil
}

func (w *walk) here() int { return w.stack[len(w.stack)-1].fd }

// path returns the path of name in the current directory.
func (w *walk) path(names ...string) string {
	var all []string
	for _, o := range w.stack {
		all = append(all, strings.Trim(o.name, "/"))
	}
	return "/" + strings.TrimLeft(strings.Join(append(all, names...), "/"), "/")
}

// split returns the names of a path, without empty ones and ".".
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}

// begin opens the top that contains names, counted from the root. ErrOutside if none does.
func (w *walk) begin(names []string) error {
	w.close()
	var at []string
	for i := 0; ; i++ {
		place := "/" + strings.Join(at, "/")
		if slices.Contains(w.tops, place) {
			w.left = names[i:]
			fd, err := open(unix.AT_FDCWD, place, unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			return w.push(fd, place)
		}
		if i == len(names) {
			return ErrOutside
		}
		if names[i] != ".." {
			at = append(at, names[i])
		} else if len(at) > 0 {
			at = at[:len(at)-1]
		}
	}
}

// push enters an open directory if its file system is allowed.
func (w *walk) push(fd int, name string) error {
	if err := w.check(fd); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	w.stack = append(w.stack, opened{fd, name})
	return nil
}

// check refuses a file on a kernel file system.
func (w *walk) check(fd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if slices.Contains(w.passed, uint64(stat.Dev)) {
		return nil
	}
	var system unix.Statfs_t
	if err := unix.Fstatfs(fd, &system); err != nil {
		return err
	}
	if slices.Contains(kernelFiles, uint32(system.Type)) {
		return ErrKernelFiles
	}
	w.passed = append(w.passed, uint64(stat.Dev))
	return nil
}

// openFolder resolves the whole path.
func (w *walk) openFolder(path string) (*Folder, error) {
	err := w.start(path)
	for err == nil && len(w.left) > 0 {
		err = w.step()
	}
	folder := &Folder{FD: -1, Links: w.links}
	switch {
	case errors.Is(err, ErrOutside):
		return folder, err
	case err != nil:
		return nil, err
	}
	folder.Path = w.path()
	// The user must be allowed to enter the folder: opening "." makes the kernel check it.
	folder.FD, err = open(w.here(), ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return folder, nil
}

// openFile resolves the path and opens its last name, which stays in left.
func (w *walk) openFile(path string, flags int, perm uint32) (int, error) {
	if strings.HasSuffix(path, "/") {
		flags |= unix.O_DIRECTORY
	}
	err := w.start(path)
	for err == nil {
		if len(w.left) == 0 {
			return -1, unix.EISDIR
		}
		if len(w.left) > 1 || w.left[0] == ".." {
			err = w.step()
			continue
		}
		name := w.left[0]
		var fd int
		fd, err = open(w.here(), name, flags|unix.O_NOFOLLOW, perm)
		switch {
		case err == nil && flags&unix.O_PATH != 0 && isLink(fd), errors.Is(err, unix.ELOOP):
			if err == nil {
				_ = unix.Close(fd)
			}
			w.left = w.left[1:]
			err = w.follow(name)
		case err == nil:
			if err = w.check(fd); err != nil {
				_ = unix.Close(fd)
				return -1, err
			}
			return fd, nil
		}
	}
	return -1, err
}

func (w *walk) start(path string) error {
	if !strings.HasPrefix(path, "/") || strings.IndexByte(path, 0) >= 0 {
		return unix.EINVAL
	}
	return w.begin(split(path))
}

// step resolves the next name. O_DIRECTORY makes the kernel mount what an automounter manages.
func (w *walk) step() error {
	name := w.left[0]
	w.left = w.left[1:]
	if name == ".." {
		return w.up()
	}
	fd, err := open(w.here(), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return w.follow(name)
	}
	if err != nil {
		return err
	}
	return w.push(fd, name)
}

// up returns to the parent directory, which may lie outside the top.
func (w *walk) up() error {
	if last := len(w.stack) - 1; last > 0 {
		_ = unix.Close(w.stack[last].fd)
		w.stack = w.stack[:last]
		return nil
	}
	above := split(w.stack[0].name)
	return w.begin(append(above[:max(0, len(above)-1)], w.left...))
}

// follow continues with the target of a link; ENOTDIR if name is not a link.
func (w *walk) follow(name string) error {
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(w.here(), name, buffer)
	switch {
	case err == unix.EINVAL:
		return unix.ENOTDIR
	case err != nil:
		return err
	case n == 0:
		return unix.ENOENT
	case len(w.links) >= maxLinks:
		return unix.ELOOP
	}
	link := Link{Path: w.path(name), Text: string(buffer[:n])}
	if err := w.mayFollow(name, &link); err != nil {
		return err
	}
	w.links = append(w.links, link)
	names := append(split(link.Text), w.left...)
	if strings.HasPrefix(link.Text, "/") {
		return w.begin(names)
	}
	w.left = names
	return nil
}

// mayFollow applies the kernel's rule for links in directories such as /tmp
// (fs.protected_symlinks): the link must belong to the user or to the owner of the directory.
func (w *walk) mayFollow(name string, link *Link) error {
	var folder, stat unix.Stat_t
	if err := unix.Fstat(w.here(), &folder); err != nil {
		return err
	}
	if err := unix.Fstatat(w.here(), name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	link.UID, link.GID = stat.Uid, stat.Gid
	const shared = unix.S_ISVTX | unix.S_IWOTH
	if folder.Mode&shared == shared && stat.Uid != folder.Uid && stat.Uid != fileID(unix.SYS_SETFSUID) {
		return unix.EACCES
	}
	return nil
}

func isLink(fd int) bool {
	var stat unix.Stat_t
	return unix.Fstat(fd, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK
}

// open calls openat(2) and repeats it after EINTR.
func open(dir int, name string, flags int, perm uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, perm)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
