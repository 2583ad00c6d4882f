package staging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
)

// local describes an error of a file of the job.
func local(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return fmt.Errorf("%s: %w", p.Path, p.Err)
	}
	return err
}

// errNotRegular means that a file to copy is a device, a socket or a FIFO.
var errNotRegular = errors.New("not a regular file")

// openFile opens a file to copy.
func openFile(root *os.Root, name string) (*os.File, int64, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold it
	if err != nil {
		return nil, 0, local(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", name, errNotRegular)
	}
	if err != nil {
		_ = f.Close() // the first error counts
		return nil, 0, local(err)
	}
	return f, info.Size(), nil
}

// source is the content of a file that a server sends.
type source struct {
	io.ReadCloser
	size   int64  // -1: unknown
	sha256 []byte // nil: unknown
}

// write writes a file below the root: as a whole or not at all, except that a crash can leave a temporary file, which the
// next try replaces.
func (s *stager) write(root *os.Root, name string, from source, moved func()) (n int64, err error) {
	if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return 0, local(err)
	}
	if from.size > maxSize {
		return 0, fmt.Errorf("the server offers %d bytes, at most %d are copied", from.size, int64(maxSize))
	}
	temporary := s.temporary(name)
	if err := root.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, local(err)
	}
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return 0, local(err)
	}
	defer func() {
		if err != nil {
			_ = root.Remove(temporary) // the first error counts
		}
	}()
	n, err = receive(f, from, moved)
	if closed := f.Close(); err == nil {
		err = local(closed)
	}
	if err != nil {
		return n, err
	}
	return n, local(root.Rename(temporary, name))
}

// temporary returns the temporary name of a file, next to it.
func (s *stager) temporary(name string) string {
	sum := sha256.Sum256([]byte(s.tag + "\x00" + name))
	return path.Join(path.Dir(name), ".greylag-"+hex.EncodeToString(sum[:12]))
}

// receive copies the content of a file and verifies its length and its hash.
func receive(f io.Writer, from source, moved func()) (n int64, err error) {
	hash, buffer := sha256.New(), make([]byte, 256<<10)
	for {
		k, failed := from.Read(buffer)
		if k > 0 {
			moved()
			if n += int64(k); n > maxSize {
				return n, fmt.Errorf("the server sent more than %d bytes", int64(maxSize))
			}
			if _, err := f.Write(buffer[:k]); err != nil {
				return n, local(err)
			}
			if from.sha256 != nil {
				_, _ = hash.Write(buffer[:k]) // never fails
			}
		}
		if errors.Is(failed, io.EOF) {
			break
		}
		if failed != nil {
			return n, &temporaryError{err: fmt.Errorf("the connection broke after %d bytes: %w", n, cause(failed))}
		}
	}
	switch {
	case from.size >= 0 && n != from.size:
		return n, &temporaryError{err: fmt.Errorf("%d bytes arrived, want %d", n, from.size)}
	case from.sha256 != nil && string(hash.Sum(nil)) != string(from.sha256):
		return n, &temporaryError{err: errors.New("the SHA-256 of what arrived is not that of the object")}
	}
	return n, nil
}

// list returns the names of the files of a directory, relative to it. A link to a directory, and one that leads out of the
// root, is an error. O(files).
func list(root *os.Root, dir string) (names []string, err error) {
	if info, err := root.Stat(dir); err != nil {
		return nil, local(err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s: not a directory", dir)
	}
	sub, err := root.OpenRoot(dir)
	if err != nil {
		return nil, local(err)
	}
	defer sub.Close()
	err = fs.WalkDir(sub.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := root.Stat(path.Join(dir, name)) // of what a link leads to
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s: %w", path.Join(dir, name), errNotRegular)
		case len(names) == maxFiles:
			return fmt.Errorf("%s: more than %d files", dir, maxFiles)
		}
		names = append(names, name)
		return nil
	})
	return names, local(err)
}

// each calls do for each name, some at a time, until one fails, and returns the sum of the bytes.
func each(ctx context.Context, names []string, do func(context.Context, string) (int64, error)) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var bytes, next atomic.Int64
	var all sync.WaitGroup
	for range min(workers, len(names)) {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(names) {
					return
				}
				n, err := do(ctx, names[i])
				bytes.Add(n)
				if err != nil {
					cancel(fmt.Errorf("%s: %w", names[i], err)) // the first one counts
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return bytes.Load(), context.Cause(ctx)
	}
	return bytes.Load(), nil
}
