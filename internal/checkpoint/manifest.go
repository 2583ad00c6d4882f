// Package checkpoint writes and verifies the manifest of a checkpoint: a directory with the saved work of a job.
//
// It decides whether the files of a directory are those that its manifest lists, from their sizes and the hashes
// of their pieces. It never decides which checkpoint a job resumes from, and it never changes or removes a file
// except the manifest: the state of the cluster records which checkpoints exist.
package checkpoint

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// A manifest has its digest in its name: a later one of the same directory does not replace it, so a refused or
// interrupted commit leaves the committed one as it is.
const (
	namePrefix = "greylag-manifest-"
	nameSuffix = ".json"
)

// Name returns the name of the manifest with a digest, in the directory of its checkpoint.
func Name(digest [sha256.Size]byte) string {
	return namePrefix + hex.EncodeToString(digest[:8]) + nameSuffix
}

// pieceSize is the size of a piece of a new manifest, in bytes. Pieces are hashed on their own, so that many
// cores and many nodes can share one file.
const pieceSize = 64 << 20

// format is the version of manifests.
const format = 1

// Bounds of a manifest.
const (
	maxFiles = 1_000_000
	maxText  = 192 << 20
	maxPath  = 4096
)

// Errors of manifests. A wrapping error names the file.
var (
	ErrEmpty     = errors.New("the directory has no files")
	ErrTooMany   = errors.New("too many files")
	ErrForeign   = errors.New("not a regular file")
	ErrName      = errors.New("the name is not valid UTF-8, or longer than 4096 bytes")
	ErrChanged   = errors.New("changed while it was read")
	ErrMalformed = errors.New("not a manifest of a checkpoint")
)

// Header is the first line of a manifest.
type Header struct {
	Format  int    `json:"greylag_manifest"`
	Job     uint64 `json:"job"`
	Attempt uint32 `json:"attempt"`
	Step    *int64 `json:"step,omitempty"`
	Hash    string `json:"hash"`            // hashed or sizesOnly
	Piece   int64  `json:"piece,omitempty"` // size of a piece in bytes; 0: that of new manifests
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`
}

// The values of Header.Hash.
const (
	hashed    = "sha256"
	sizesOnly = "none"
)

// File is one file of a checkpoint.
type File struct {
	Path   string   `json:"path"` // relative, with slashes
	Size   int64    `json:"size"`
	Pieces []string `json:"pieces,omitempty"` // SHA-256 of each piece, in hexadecimal
}

// Manifest is the list of a checkpoint's files, sorted by path.
type Manifest struct {
	Header
	List []File
}

// Hashed reports whether the manifest has the hashes of the files, not only their sizes.
func (m *Manifest) Hashed() bool { return m.Hash == hashed }

// trailer is the last line of a manifest: the SHA-256 of all lines before it.
type trailer struct {
	Digest string `json:"digest"`
}

// encode returns the text of a manifest and its digest. Equal content gives equal text.
func (m *Manifest) encode() ([]byte, [sha256.Size]byte, error) {
	var out bytes.Buffer
	w := json.NewEncoder(&out) // one line a value
	w.SetEscapeHTML(false)
	if err := w.Encode(m.Header); err != nil {
		return nil, [sha256.Size]byte{}, fmt.Errorf("manifest: %w", err)
	}
	for i := range m.List {
		if err := w.Encode(&m.List[i]); err != nil {
			return nil, [sha256.Size]byte{}, fmt.Errorf("manifest: %w", err)
		}
	}
	digest := sha256.Sum256(out.Bytes())
	if err := w.Encode(trailer{hex.EncodeToString(digest[:])}); err != nil {
		return nil, digest, fmt.Errorf("manifest: %w", err)
	}
	if out.Len() > maxText {
		return nil, digest, fmt.Errorf("%w: their list has %d bytes, at most %d", ErrTooMany, out.Len(), maxText)
	}
	return out.Bytes(), digest, nil
}

// decode reads the text of a manifest and checks its digest. ErrMalformed if it is torn or altered.
func decode(text []byte) (m Manifest, digest [sha256.Size]byte, err error) {
	body, last, ok := cutLastLine(text)
	digest = sha256.Sum256(body)
	var end trailer
	if !ok || json.Unmarshal(last, &end) != nil || end.Digest != hex.EncodeToString(digest[:]) {
		return m, digest, fmt.Errorf("%w: incomplete or altered", ErrMalformed)
	}
	lines := bufio.NewReader(bytes.NewReader(body))
	for n := 0; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		switch {
		case n == 0:
			err = json.Unmarshal(line, &m.Header)
		case n > maxFiles:
			err = ErrTooMany
		default:
			var f File
			err = json.Unmarshal(line, &f)
			m.List = append(m.List, f)
		}
		if err != nil {
			return m, digest, fmt.Errorf("%w: line %d: %w", ErrMalformed, n+1, err)
		}
	}
	return m, digest, m.check()
}

// cutLastLine splits a text before its last line.
func cutLastLine(text []byte) (before, last []byte, ok bool) {
	if !bytes.HasSuffix(text, []byte("\n")) {
		return nil, nil, false
	}
	at := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	return text[:at], text[at:], at > 0
}

// check refuses values that no version writes: another format, paths that lead out of the directory, and counts
// that do not match.
func (m *Manifest) check() error {
	if m.Format != format || m.Hash != hashed && m.Hash != sizesOnly || m.Piece < readSize || m.Piece > 1<<40 {
		return fmt.Errorf("%w: format %d with hash %q of pieces of %d bytes", ErrMalformed, m.Format, m.Hash, m.Piece)
	}
	total, before := int64(0), ""
	for i := range m.List {
		f := &m.List[i]
		want := 0
		if m.Hashed() {
			want = m.pieces(f.Size)
		}
		switch {
		case f.Path <= before || !fs.ValidPath(f.Path) || f.Path == "." || len(f.Path) > maxPath:
			return fmt.Errorf("%w: path %q", ErrMalformed, f.Path)
		case f.Size < 0 || len(f.Pieces) != want:
			return fmt.Errorf("%w: %q has %d bytes and %d pieces", ErrMalformed, f.Path, f.Size, len(f.Pieces))
		}
		total, before = total+f.Size, f.Path
	}
	if len(m.List) != m.Files || total != m.Bytes || m.Files == 0 {
		return fmt.Errorf("%w: %d files with %d bytes, the first line says %d with %d", ErrMalformed, len(m.List), total, m.Files, m.Bytes)
	}
	return nil
}

// pieces returns the number of pieces of a file. It does not overflow.
func (m *Manifest) pieces(size int64) int {
	n := size / m.Piece
	if size%m.Piece > 0 {
		n++
	}
	return int(n)
}

// Read reads the manifest with a digest in a directory. fs.ErrNotExist without one, ErrMalformed if it is torn or
// altered.
func Read(root *os.Root, want [sha256.Size]byte) (m Manifest, err error) {
	f, err := openRegular(root, Name(want))
	if err != nil {
		return m, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil {
		return m, err
	}
	if len(text) > maxText {
		return m, fmt.Errorf("%w: above %d bytes", ErrMalformed, maxText)
	}
	if body, _, ok := cutLastLine(text); !ok || sha256.Sum256(body) != want { // before anything is decoded
		return m, fmt.Errorf("%w: incomplete or altered", ErrMalformed)
	}
	m, _, err = decode(text)
	return m, err
}

// openRegular opens a regular file for reading. It does not wait for the writer of a named pipe.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
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

// Write writes the manifest into the directory and returns its digest. A crash leaves it whole or not at all.
// The same manifest is not written again.
func (m *Manifest) Write(root *os.Root) (digest [sha256.Size]byte, err error) {
	text, digest, err := m.encode()
	if err != nil {
		return digest, err
	}
	if _, err := Read(root, digest); err == nil {
		return digest, nil
	}
	temporary := temporaryPrefix + rand.Text() + temporarySuffix
	if err := writeSynced(root, temporary, text); err != nil {
		return digest, errors.Join(err, root.Remove(temporary))
	}
	if err := root.Rename(temporary, Name(digest)); err != nil {
		// A server that executes a rename twice refuses the second time.
		if _, again := Read(root, digest); again != nil {
			return digest, errors.Join(err, root.Remove(temporary))
		}
	}
	return digest, syncDir(root, ".")
}

// The names of manifests that are being written. Several hosts may write at the same time: each renames its own
// text, and they are equal.
const (
	temporaryPrefix = ".greylag-manifest-"
	temporarySuffix = ".tmp"
)

// own reports whether a file in the directory of a checkpoint belongs to this package.
func own(name string) bool {
	return strings.HasPrefix(name, namePrefix) && strings.HasSuffix(name, nameSuffix) ||
		strings.HasPrefix(name, temporaryPrefix) && strings.HasSuffix(name, temporarySuffix)
}

func writeSynced(root *os.Root, name string, text []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes the names in a directory durable.
func syncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// list returns the files of a directory without hashes, sorted, and its directories. It refuses anything but
// regular files and directories: a link could lead out of the checkpoint. O(files).
func list(root *os.Root) (files []File, dirs []string, err error) {
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			dirs = append(dirs, name)
			return nil
		case path.Dir(name) == "." && own(name):
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s: %w", name, ErrForeign)
		case len(name) > maxPath, !utf8.ValidString(name):
			return fmt.Errorf("%q: %w", name, ErrName)
		case len(files) == maxFiles:
			return fmt.Errorf("%w: above %d", ErrTooMany, maxFiles)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files = append(files, File{Path: name, Size: info.Size()})
		return nil
	})
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, dirs, err
}
