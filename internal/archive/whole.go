package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
)

// The head of a bbolt file: two meta pages, of which the one with the higher
// transaction counts if its checksum is right (bbolt internal/common/meta.go).
const (
	metaAt       = 16 // after the page's own head
	metaBytes    = 64
	metaMagic    = 0xED0CDAED
	smallestPage = 1 << 10
	largestPage  = 1 << 16
)

// whole reports whether a file ends before the pages it speaks of. bbolt maps files
// into memory, and the kernel ends a process that reads a map beyond the file.
func whole(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	var newest, end uint64
	for page := int64(smallestPage); page <= largestPage; page *= 2 {
		for _, at := range []int64{0, page} {
			m, ok := readMeta(f, at, uint32(page))
			if ok && m.tx >= newest {
				newest, end = m.tx, m.pages*uint64(page)
			}
		}
	}
	if uint64(info.Size()) < end {
		return fmt.Errorf("cut off after %d of %d bytes", info.Size(), end)
	}
	return nil // one without a valid meta page is refused by bbolt itself
}

type meta struct{ pages, tx uint64 }

func readMeta(r io.ReaderAt, at int64, page uint32) (meta, bool) {
	var b [metaBytes]byte
	if _, err := r.ReadAt(b[:], at+metaAt); err != nil {
		return meta{}, false
	}
	sum := fnv.New64a()
	sum.Write(b[:56])
	n := binary.NativeEndian
	ok := n.Uint32(b[0:]) == metaMagic && n.Uint32(b[8:]) == page && n.Uint64(b[56:]) == sum.Sum64()
	return meta{pages: n.Uint64(b[40:]), tx: n.Uint64(b[48:])}, ok
}
