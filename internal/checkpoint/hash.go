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
func (m *Manifest) eachPiece(ctx context.Context, s Store, all []piece, work func(context.Context, *hasher, piece) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan piece)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(all)) {
		workers.Go(func() {
			h := &hasher{store: s, piece: m.Piece, buffer: make([]byte, readSize)}
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

// hasher hashes pieces of the files of a checkpoint, one at a time.
type hasher struct {
	store  Store
	piece  int64 // size
	buffer []byte
}

// hash returns the hash of a piece of a file. io.ErrUnexpectedEOF if the file has become shorter.
func (h *hasher) hash(ctx context.Context, f *File, index int) (string, error) {
	from := int64(index) * h.piece
	left := min(f.Size-from, h.piece)
	r, err := h.store.open(ctx, f.Path, from, left)
	if err != nil {
		return "", err
	}
	defer r.Close()
	sum := sha256.New()
	for left > 0 {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := io.ReadFull(r, h.buffer[:min(left, readSize)])
		sum.Write(h.buffer[:n])
		left -= int64(n)
		if errors.Is(err, io.EOF) {
			return "", io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Create makes the manifest of the files in a store, with their hashes unless sizes alone are requested. It
// makes the files durable. ErrChanged if a file changes meanwhile. O(bytes), on all cores.
func Create(ctx context.Context, s Store, head Header, withHashes bool) (*Manifest, error) {
	files, err := s.list(ctx)
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
	if err := s.sync(ctx, files); err != nil {
		return nil, err
	}
	if withHashes {
		m.Hash = hashed
		if err := m.hashAll(ctx, s); err != nil {
			return nil, err
		}
	}
	return m, unchanged(ctx, s, files)
}

// changedOr returns ErrChanged for a file that became shorter or was removed, else the error.
func changedOr(name string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, ErrChanged)
	}
	return err
}

// hashAll hashes all pieces of the files. O(bytes), on all cores.
func (m *Manifest) hashAll(ctx context.Context, s Store) error {
	var all []piece
	for i := range m.List {
		f := &m.List[i]
		f.Pieces = make([]string, m.pieces(f.Size))
		for n := range f.Pieces {
			all = append(all, piece{i, n})
		}
	}
	return m.eachPiece(ctx, s, all, func(ctx context.Context, h *hasher, p piece) (err error) {
		f := &m.List[p.file]
		if f.Pieces[p.index], err = h.hash(ctx, f, p.index); err != nil {
			err = changedOr(f.Path, err)
		}
		return err
	})
}

// unchanged returns ErrChanged if the store has other files than before, or one has changed. O(files).
func unchanged(ctx context.Context, s Store, before []File) error {
	now, err := s.list(ctx)
	if err != nil {
		return err
	}
	for i := range before {
		if i == len(now) || now[i].Path != before[i].Path || now[i].Size != before[i].Size || now[i].version != before[i].version {
			return fmt.Errorf("%s: %w", before[i].Path, ErrChanged)
		}
	}
	if len(now) > len(before) {
		return fmt.Errorf("%w: %d files, now %d", ErrChanged, len(before), len(now))
	}
	return nil
}
