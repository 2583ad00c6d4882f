package checkpoint

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/greylag/greylag/pkg/cluster"
)

// Store has the files of one checkpoint: a directory, or the objects of an S3 bucket below a prefix. The errors
// of missing files wrap fs.ErrNotExist.
type Store interface {
	io.Closer
	// list returns the files without hashes, sorted by path, and without manifests. O(files).
	list(ctx context.Context) ([]File, error)
	// sync makes files durable.
	sync(ctx context.Context, files []File) error
	// size returns the size of a file in bytes.
	size(ctx context.Context, name string) (int64, error)
	// open returns the bytes of a file from an offset on, size of them or less if the file is shorter.
	open(ctx context.Context, name string, offset, size int64) (io.ReadCloser, error)
	// write writes a manifest, as a whole or not at all.
	write(ctx context.Context, name string, text []byte) error
}

// Open opens the store of a checkpoint: an absolute path, or s3://BUCKET/PREFIX.
func Open(dir string) (Store, error) {
	if cluster.InS3(dir) {
		return openBucket(dir)
	}
	return openDirectory(dir)
}

// Read reads the manifest with a digest. fs.ErrNotExist without one, ErrMalformed if it is torn or altered.
func Read(ctx context.Context, s Store, want [sha256.Size]byte) (m Manifest, err error) {
	r, err := s.open(ctx, Name(want), 0, maxText+1)
	if err != nil {
		return m, err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
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

// Write writes the manifest into the store and returns its digest. A crash leaves it whole or not at all.
// The same manifest is not written again.
func (m *Manifest) Write(ctx context.Context, s Store) (digest [sha256.Size]byte, err error) {
	text, digest, err := m.encode()
	if err != nil {
		return digest, err
	}
	if _, err := Read(ctx, s, digest); err == nil {
		return digest, nil
	}
	if err := s.write(ctx, Name(digest), text); err != nil {
		// A server that executes a request twice may refuse it the second time.
		if _, again := Read(ctx, s, digest); again != nil {
			return digest, err
		}
	}
	return digest, nil
}
