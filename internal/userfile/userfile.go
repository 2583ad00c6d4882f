//go:build linux

package userfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

var (
	// ErrKernelFiles reports a path that passes through a file system of the kernel.
	ErrKernelFiles = errors.New("passes through a kernel file system, such as /proc")
	// ErrNotRegular reports a file that is a folder, a device, a FIFO or a socket.
	ErrNotRegular = errors.New("not a regular file")
	// ErrOutside reports a path whose links lead out of the folders that the caller allows.
	ErrOutside = errors.New("leaves the allowed directories")
)

// Read opens a regular file for reading, as owner. It never blocks on a FIFO.
func Read(owner Owner, path string) (*os.File, error) {
	var file *os.File
	err := As(owner, func() (err error) {
		file, err = OpenRegular(path)
		return err
	})
	return file, err
}

// OpenRegular opens a regular file for reading with the identity of the calling thread.
func OpenRegular(path string) (*os.File, error) {
	fd, err := Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Append adds text to a regular file that exists, as owner. It never blocks on a FIFO.
func Append(owner Owner, path, text string) error {
	return As(owner, func() error {
		fd, err := Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), path)
		info, err := file.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
		}
		if err == nil {
			_, err = file.WriteString(text)
		}
		return errors.Join(err, file.Close())
	})
}

// Open opens an absolute path with the identity of the calling thread, and returns a descriptor.
// The flags are those of open(2), and perm is for a file that O_CREAT makes.
func Open(path string, flags int, perm uint32) (int, error) {
	w := newWalk("/")
	defer w.close()
	fd, err := w.openFile(path, flags, perm)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// Folder is a folder, or another file, that a path led to.
type Folder struct {
	FD    int    // opened with O_PATH
	Path  string // where it lies, without links
	Links []Link // which were followed, in order
}

// Link is a symbolic link.
type Link struct {
	Path     string // where it lies, without links
	Text     string // what it holds
	UID, GID uint32 // its owner
}

// Close closes the descriptor.
func (f *Folder) Close() error { return unix.Close(f.FD) }

// OpenFolder opens a directory by its absolute path with the identity of the calling thread.
func OpenFolder(path string) (*Folder, error) { return OpenFolderBeneath(path, "/") }

// OpenFolderBeneath opens a directory inside one of tops. It follows links that stay inside. If a
// link leads out, the error is ErrOutside, and the Folder holds only the links. No top may lie
// inside another.
func OpenFolderBeneath(path string, tops ...string) (*Folder, error) {
	w := newWalk(tops...)
	defer w.close()
	folder, err := w.openFolder(path)
	if err != nil {
		err = &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return folder, err
}

// OpenPath opens a file of any kind with O_PATH and the identity of the calling thread.
func OpenPath(path string) (*Folder, error) {
	folder, err := OpenFolder(path)
	if !errors.Is(err, unix.ENOTDIR) {
		return folder, err
	}
	w := newWalk("/")
	defer w.close()
	fd, err := w.openFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &Folder{FD: fd, Path: w.path(w.left[0]), Links: w.links}, nil
}

// Proc returns a path by which this process reaches an open descriptor.
func Proc(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
