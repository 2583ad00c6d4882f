// Package checkpoint writes and verifies the manifest of a checkpoint: a directory, or a prefix of an S3 bucket, with
// the saved work of a job.
//
// It decides whether the files of a checkpoint are those that its manifest lists, from their sizes and the hashes
// of their pieces. It never decides which checkpoint a job resumes from, and it never changes or removes a file
// except the manifest: the state of the cluster records which checkpoints exist.
package checkpoint

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
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

	version string // changes with the content: only of a listed file
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

// own reports whether a file in the directory of a checkpoint belongs to this package.
func own(name string) bool {
	return strings.HasPrefix(name, namePrefix) && strings.HasSuffix(name, nameSuffix) ||
		strings.HasPrefix(name, temporaryPrefix) && strings.HasSuffix(name, temporarySuffix)
}
