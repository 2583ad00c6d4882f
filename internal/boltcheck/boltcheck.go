// Package boltcheck checks a bbolt file before bbolt opens it.
//
// bbolt maps its file into memory and trusts the pages. A truncated or corrupt file
// ends the process: by SIGBUS, or by a panic in a goroutine of bbolt that no caller
// can recover. Tree reads every page header, element and key with bounds checks and
// reports the first inconsistency. It covers everything on which bbolt's own scan of
// the tree panics, and every offset that bbolt follows later. Values are not checked:
// their owners keep checksums.
//
// The package never writes, and takes bbolt's file lock (shared) while it reads.
package boltcheck

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"time"
)

var (
	// ErrDamaged is returned when the file is not a whole bbolt database.
	ErrDamaged = errors.New("not a complete bbolt file")
	// ErrMetaLost is returned when one of the two meta pages is invalid and the rest is
	// whole: the newest transaction may be missing. It wraps ErrDamaged.
	ErrMetaLost = fmt.Errorf("%w: one of the two meta pages is invalid, the newest transaction may be missing", ErrDamaged)
	// ErrInUse is returned when another process has the file open for writing.
	ErrInUse = errors.New("the file is in use by another process")
)

const (
	// lockTime is how long a check waits for the lock of a process that is about to exit.
	lockTime  = time.Second
	lockRetry = 20 * time.Millisecond
)

// Size checks that the file holds all pages that its meta pages name. It reads two
// pages, whatever the size of the file.
func Size(path string) error {
	return withFile(path, func(*file) error { return nil })
}

// Tree checks Size and the whole tree. It reads the header, the elements and the
// keys of every page in use, which bbolt does on open too where the list of free
// pages is not stored. It returns the names of the top-level buckets.
func Tree(path string) (buckets []string, err error) {
	err = withFile(path, func(f *file) error {
		buckets, err = f.tree()
		return err
	})
	return buckets, err
}

// withFile maps the file, reads its meta pages and calls check. Reading a bad disk
// sector or the end of a file that shrinks is an error, not a signal.
func withFile(path string, check func(*file) error) (err error) {
	h, err := os.Open(path)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := lock(h); err != nil {
		return err
	}
	info, err := h.Stat()
	if err != nil {
		return err
	}
	if info.Size() < 2*smallestPage {
		return fmt.Errorf("%w: %d bytes", ErrDamaged, info.Size())
	}
	data, err := syscall.Mmap(int(h.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", path, err)
	}
	defer syscall.Munmap(data)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: reading failed: %v", ErrDamaged, p)
		}
	}()
	f, err := open(data)
	if err != nil {
		return err
	}
	if err := check(f); err != nil {
		return err
	}
	if f.metaLost {
		return ErrMetaLost
	}
	return nil
}

// lock takes the lock that bbolt takes, shared. Closing the file releases it.
func lock(h *os.File) error {
	for end := time.Now().Add(lockTime); ; {
		err := syscall.Flock(int(h.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("lock: %w", err)
		case time.Now().After(end):
			return ErrInUse
		}
		time.Sleep(lockRetry)
	}
}
