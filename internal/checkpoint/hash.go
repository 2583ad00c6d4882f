package checkpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
)

// readSize is the size of one read while hashing, in bytes.
const readSize = 1 << 20

// piece is one piece of a file: its position in the list of files, and in the file.
type piece struct {
	file, index int
}

// eachPiece calls work for each piece on as many goroutines as there are cores. It returns the first error and
// then starts no further piece. O(pieces).
func (m *Manifest) eachPiece(ctx context.Context, root *os.Root, all []piece, work func(context.Context, *hasher, piece) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan piece)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(all)) {
		workers.Go(func() {
			h := &hasher{root: root, piece: m.Piece, buffer: make([]byte, readSize)}
			for p := range next {
				if err := work(ctx, h, p); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, p := range all {
		if ctx.Err() != nil {
			break
		}
		next <- p
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// hasher hashes pieces of the files of a directory, one at a time.
type hasher struct {
	root   *os.Root
	piece  int64 // size
	buffer []byte
}

// hash returns the hash of a piece of a file. io.ErrUnexpectedEOF if the file has become shorter.
func (h *hasher) hash(ctx context.Context, f *File, index int) (string, error) {
	file, err := openRegular(h.root, f.Path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	from := int64(index) * h.piece
	left := min(f.Size-from, h.piece)
	sum := sha256.New()
	for left > 0 {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := file.ReadAt(h.buffer[:min(left, readSize)], from)
		sum.Write(h.buffer[:n])
		from, left = from+int64(n), left-int64(n)
		if left > 0 && errors.Is(err, io.EOF) {
			return "", io.ErrUnexpectedEOF
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Create makes the manifest of the files in a directory, with their hashes unless sizes alone are requested. It
// makes the files durable. ErrChanged if a file changes meanwhile. O(bytes), on all cores.
func Create(ctx context.Context, root *os.Root, head Header, withHashes bool) (*Manifest, error) {
	files, dirs, err := list(root)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, ErrEmpty
	}
	m := &Manifest{Header: head, List: files}
	m.Format, m.Hash, m.Files, m.Piece = format, sizesOnly, len(files), cmp.Or(head.Piece, pieceSize)
	for i := range files {
		m.Bytes += files[i].Size
	}
	before := make([]os.FileInfo, len(files))
	for i := range files {
		if before[i], err = syncFile(root, files[i].Path); err != nil {
			return nil, err
		}
	}
	if withHashes {
		m.Hash = hashed
		if err := m.hashAll(ctx, root); err != nil {
			return nil, err
		}
	}
	if err := unchanged(root, files, before); err != nil {
		return nil, err
	}
	for _, d := range dirs {
		if err := syncDir(root, d); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// changedOr returns ErrChanged for a file that became shorter or was removed, else the error.
func changedOr(name string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, ErrChanged)
	}
	return err
}

// syncFile makes a file durable and returns its size and time.
func syncFile(root *os.Root, name string) (os.FileInfo, error) {
	f, err := openRegular(root, name)
	if err != nil {
		return nil, changedOr(name, err)
	}
	info, err := f.Stat()
	return info, errors.Join(err, f.Sync(), f.Close())
}

// hashAll hashes all pieces of the files. O(bytes), on all cores.
func (m *Manifest) hashAll(ctx context.Context, root *os.Root) error {
	var all []piece
	for i := range m.List {
		f := &m.List[i]
		f.Pieces = make([]string, m.pieces(f.Size))
		for n := range f.Pieces {
			all = append(all, piece{i, n})
		}
	}
	return m.eachPiece(ctx, root, all, func(ctx context.Context, h *hasher, p piece) (err error) {
		f := &m.List[p.file]
		if f.Pieces[p.index], err = h.hash(ctx, f, p.index); err != nil {
			err = changedOr(f.Path, err)
		}
		return err
	})
}

// unchanged returns ErrChanged if the directory has other files than before, or one has another size or time.
func unchanged(root *os.Root, files []File, before []os.FileInfo) error {
	for i := range files {
		now, err := root.Lstat(files[i].Path)
		if err != nil {
			return changedOr(files[i].Path, err)
		}
		if now.Size() != files[i].Size || !now.ModTime().Equal(before[i].ModTime()) {
			return fmt.Errorf("%s: %w", files[i].Path, ErrChanged)
		}
	}
	all, _, err := list(root)
	if err == nil && len(all) != len(files) {
		err = fmt.Errorf("%w: %d files, now %d", ErrChanged, len(files), len(all))
	}
	return err
}
