package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Share is the part of a checkpoint that one of several hosts verifies: the files and pieces whose number leaves
// the remainder Index when it is divided by Of.
type Share struct {
	Index, Of int
}

// All is the whole checkpoint.
var All = Share{0, 1}

func (s Share) has(n int) bool { return n%s.Of == s.Index }

// Damage is how the content of a checkpoint differs from its manifest, or from the committed manifest. It is an
// error that reading again does not change.
type Damage struct{ Text string }

// Error returns one line such as "shard-7: 3 of 420 pieces differ".
func (d *Damage) Error() string { return d.Text }

// maxNamed is the number of damaged files that a Damage names.
const maxNamed = 3

// Verify reads a share of a checkpoint and compares it with its manifest, whose digest must be want. The error is
// a *Damage if they differ, and another one if the directory cannot be read here, so that another host may see
// it. O(bytes of the share), on all cores.
func Verify(ctx context.Context, dir string, want [32]byte, share Share) (*Manifest, error) {
	s, err := Open(dir)
	if err != nil {
		return nil, missing(dir, err)
	}
	defer s.Close()
	m, err := Read(ctx, s, want)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, &Damage{Name(want) + " does not exist"}
	case errors.Is(err, ErrMalformed), errors.Is(err, ErrForeign):
		return nil, &Damage{fmt.Sprintf("%s: %v", Name(want), err)}
	case errors.Is(err, os.ErrPermission):
		return nil, &Damage{err.Error()}
	case err != nil:
		return nil, err
	}
	found, err := compare(ctx, s, &m, share)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		return nil, damageOf(found)
	}
	return &m, nil
}

// missing returns how a checkpoint that cannot be opened is judged. It is damage if other checkpoints are next to it,
// or if the user may not open it. Otherwise its file system may be missing on this host.
func missing(dir string, err error) error {
	others, _ := os.ReadDir(filepath.Dir(dir)) // unreadable: no others are seen
	if errors.Is(err, os.ErrNotExist) && len(others) > 0 {
		return &Damage{"the directory does not exist"}
	}
	if errors.Is(err, os.ErrPermission) {
		return &Damage{err.Error()}
	}
	return err
}

// damageOf describes damaged files.
func damageOf(found []string) *Damage {
	slices.Sort(found)
	text := strings.Join(found[:min(len(found), maxNamed)], "; ")
	if more := len(found) - maxNamed; more > 0 {
		text += fmt.Sprintf("; %d more files", more)
	}
	return &Damage{text}
}

// compare returns what is damaged, one text a file.
func compare(ctx context.Context, s Store, m *Manifest, share Share) (found []string, err error) {
	var all []piece
	number := 0
	for i := range m.List {
		f := &m.List[i]
		if share.has(i) {
			switch size, err := s.size(ctx, f.Path); {
			case errors.Is(err, os.ErrNotExist):
				found = append(found, f.Path+": does not exist")
				continue
			case errors.Is(err, ErrForeign):
				found = append(found, f.Path+": "+ErrForeign.Error())
				continue
			case err != nil:
				return nil, err
			case size != f.Size:
				found = append(found, fmt.Sprintf("%s: %d bytes, want %d", f.Path, size, f.Size))
				continue
			}
		}
		for n := range f.Pieces {
			if share.has(number + n) {
				all = append(all, piece{i, n})
			}
		}
		number += len(f.Pieces)
	}
	different, err := differing(ctx, s, m, all)
	for i, n := range different {
		f := &m.List[i]
		found = append(found, fmt.Sprintf("%s: %d of %d pieces differ", f.Path, n, len(f.Pieces)))
	}
	return found, err
}

// contentErrors are errors of reading a file that are damage: they do not depend on the host.
var contentErrors = []error{io.ErrUnexpectedEOF, os.ErrNotExist, os.ErrPermission, ErrForeign}

// differing hashes pieces, and returns how many of each file differ from the manifest.
func differing(ctx context.Context, s Store, m *Manifest, all []piece) (map[int]int, error) {
	var lock sync.Mutex
	different := map[int]int{}
	err := m.eachPiece(ctx, s, all, func(ctx context.Context, h *hasher, p piece) error {
		f := &m.List[p.file]
		sum, err := h.hash(ctx, f, p.index)
		if err != nil && !slices.ContainsFunc(contentErrors, func(e error) bool { return errors.Is(err, e) }) {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if sum != f.Pieces[p.index] {
			lock.Lock()
			different[p.file]++
			lock.Unlock()
		}
		return nil
	})
	return different, err
}
