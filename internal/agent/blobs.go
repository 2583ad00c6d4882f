package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxBlobs limits the scripts and environments kept in memory, so that the tasks of an array fetch
// theirs once.
const maxBlobs = 16 << 20

// errWrongBlob means that fetched content does not match its digest.
var errWrongBlob = errors.New("content does not match its digest")

// blobCache caches contents by digest. A full cache is emptied.
type blobCache struct {
	mu   sync.Mutex
	kept map[[sha256.Size]byte][]byte
	size int
}

func newBlobCache() *blobCache { return &blobCache{kept: map[[sha256.Size]byte][]byte{}} }

func (c *blobCache) get(digest [sha256.Size]byte) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	content, ok := c.kept[digest]
	return content, ok
}

func (c *blobCache) put(digest [sha256.Size]byte, content []byte) {
	if len(content) > maxBlobs/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size+len(content) > maxBlobs {
		clear(c.kept)
		c.size = 0
	}
	c.kept[digest] = content
	c.size += len(content)
}

// blob returns a script or an environment; nil for no digest. It waits for a controller that is
// unreachable.
func (a *Agent) blob(ctx context.Context, digest []byte) ([]byte, error) {
	if len(digest) == 0 {
		return nil, nil
	}
	if len(digest) != sha256.Size {
		return nil, fmt.Errorf("digest of %d bytes: %w", len(digest), errWrongBlob)
	}
	key := [sha256.Size]byte(digest)
	if key == ([sha256.Size]byte{}) {
		return nil, nil
	}
	if content, ok := a.blobs.get(key); ok {
		return content, nil
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := a.session.Fetch(limited, &greylagv1.GetContentRequest{Digest: digest})
	if lost := (*connect.Error)(nil); errors.As(err, &lost) && lost.Code() == connect.CodeDataLoss {
		return nil, failed(cluster.LaunchFailed, "%s", lost.Message())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: fetch %x: %w", errPostpone, key[:6], err)
	}
	content := response.GetContent()
	if sha256.Sum256(content) != key {
		return nil, fmt.Errorf("%w: fetch %x: %w", errPostpone, key[:6], errWrongBlob)
	}
	a.blobs.put(key, content)
	return content, nil
}
