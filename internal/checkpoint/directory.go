package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// directory is a checkpoint in a directory.
type directory struct{ *os.Root }

func openDirectory(dir string) (Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return directory{root}, nil
}

// list refuses anything but regular files and directories: a link could lead out of the checkpoint.
func (d directory) list(context.Context) (files []File, err error) {
	err = fs.WalkDir(d.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir(), path.Dir(name) == "." && own(name):
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%s: %w", name, ErrForeign)
		case len(name) > maxPath, !utf8.ValidString(name):
			return fmt.Errorf("%q: %w", name, ErrName)
		case len(files) == maxFiles:
			return fmt.Errorf("%w: above %d", ErrTooMany, maxFiles)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		files = append(files, File{Path: name, Size: info.Size(), version: info.ModTime().String()})
		return nil
	})
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

// sync makes files and their names durable.
func (d directory) sync(_ context.Context, files []File) error {
	folders := map[string]bool{".": true}
	for i := range files {
		if err := d.syncFile(files[i].Path); err != nil {
			return changedOr(files[i].Path, err)
		}
		for in := path.Dir(files[i].Path); !folders[in]; in = path.Dir(in) {
			folders[in] = true
		}
	}
	for in := range folders {
		if err := d.syncFolder(in); err != nil {
			return err
		}
	}
	return nil
}

func (d directory) syncFile(name string) error {
	f, err := d.openRegular(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncFolder makes the names in a directory durable.
func (d directory) syncFolder(name string) error {
	f, err := d.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d directory) size(_ context.Context, name string) (int64, error) {
	info, err := d.Lstat(name)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, ErrForeign
	}
	return info.Size(), nil
}

func (d directory) open(_ context.Context, name string, offset, size int64) (io.ReadCloser, error) {
	f, err := d.openRegular(name)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, offset, size), f}, nil
}

// openRegular opens a regular file for reading. It does not wait for the writer of a named pipe.
func (d directory) openRegular(name string) (*os.File, error) {
	f, err := d.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", name, ErrForeign)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// The names of manifests that are being written. Several hosts may write at the same time: each renames its own
// text, and they are equal.
const (
	temporaryPrefix = ".greylag-manifest-"
	temporarySuffix = ".tmp"
)

func (d directory) write(_ context.Context, name string, text []byte) error {
	temporary := temporaryPrefix + rand.Text() + temporarySuffix
	err := d.writeSynced(temporary, text)
	if err == nil {
		err = d.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, d.Remove(temporary))
	}
	return d.syncFolder(".")
}

func (d directory) writeSynced(name string, text []byte) error {
	f, err := d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
