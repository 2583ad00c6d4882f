package staging

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/minio/minio-go/v7"

	"github.com/greylag/greylag/internal/checkpoint"
)

// errName means that the key of an object cannot be the name of a file below the directory.
var errName = errors.New("the key of an object is no path below the directory")

// Bounds of the keys of objects.
const (
	maxKey  = 1024
	maxName = 255 // of each part
)

// bucketOf splits s3://BUCKET/KEY.
func bucketOf(address string) (bucket, key string) {
	bucket, key, _ = strings.Cut(strings.TrimPrefix(address, "s3://"), "/")
	return bucket, key
}

// fromBucket copies an object, or all objects whose keys begin with a prefix.
func (s *stager) fromBucket(ctx context.Context, root *os.Root, c Copy) (int64, error) {
	client, err := checkpoint.Client(s.guard)
	if err != nil {
		return 0, err
	}
	bucket, key := bucketOf(c.URL)
	object := func(ctx context.Context, key, name string) (int64, error) {
		return s.retry(ctx, func(ctx context.Context, moved func()) (int64, error) {
			return s.getObject(ctx, client, bucket, key, root, name, moved)
		})
	}
	if !strings.HasSuffix(key, "/") {
		return object(ctx, key, c.Path)
	}
	names, err := s.objects(ctx, client, bucket, key)
	if err != nil {
		return 0, err
	}
	return each(ctx, names, func(ctx context.Context, name string) (int64, error) {
		return object(ctx, key+name, path.Join(c.Path, name))
	})
}

// objects lists the objects whose keys begin with a prefix, without it.
func (s *stager) objects(ctx context.Context, client *minio.Core, bucket, prefix string) (names []string, err error) {
	_, err = s.retry(ctx, func(ctx context.Context, moved func()) (int64, error) {
		names = names[:0]
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the listing
		for o := range client.Client.ListObjects(ctx, bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
			moved()
			if o.Err != nil {
				return 0, bucketError(o.Err)
			}
			name, below := strings.CutPrefix(o.Key, prefix)
			if below && (name == "" || strings.HasSuffix(name, "/") && o.Size == 0) { // some programs mark folders with such objects
				continue
			}
			if !below || !isName(name) {
				return 0, fmt.Errorf("%w: %.200q", errName, o.Key)
			}
			if names = append(names, name); len(names) > maxFiles {
				return 0, fmt.Errorf("more than %d objects", maxFiles)
			}
		}
		return 0, ctx.Err()
	})
	if err == nil && len(names) == 0 {
		err = errors.New("there is no object with this prefix")
	}
	return names, err
}

// isName reports whether the rest of a key can be a path below a directory.
func isName(name string) bool {
	if len(name) > maxKey || name == "." || !utf8.ValidString(name) || strings.ContainsRune(name, 0) || !fs.ValidPath(name) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return false
		}
	}
	return true
}

// getObject copies an object to a file.
func (s *stager) getObject(ctx context.Context, client *minio.Core, bucket, key string, root *os.Root, name string, moved func()) (int64, error) {
	body, info, _, err := client.GetObject(ctx, bucket, key, minio.GetObjectOptions{Checksum: true})
	if err != nil {
		return 0, bucketError(err)
	}
	defer body.Close()
	from := source{ReadCloser: body, size: info.Size}
	if sum, err := base64.StdEncoding.DecodeString(info.ChecksumSHA256); err == nil && len(sum) == 32 { // that of several parts has a suffix
		from.sha256 = sum
	}
	return s.write(root, name, from, moved)
}

// toBucket copies a file to an object, or all files of a directory to objects whose keys begin with a prefix.
func (s *stager) toBucket(ctx context.Context, root *os.Root, c Copy) (int64, error) {
	client, err := checkpoint.Client(s.guard)
	if err != nil {
		return 0, err
	}
	bucket, key := bucketOf(c.URL)
	object := func(ctx context.Context, key, name string) (int64, error) {
		return s.retry(ctx, func(ctx context.Context, moved func()) (int64, error) {
			return putObject(ctx, client, bucket, key, root, name, moved)
		})
	}
	if !strings.HasSuffix(key, "/") {
		return object(ctx, key, c.Path)
	}
	names, err := list(root, c.Path)
	if err != nil {
		return 0, err
	}
	return each(ctx, names, func(ctx context.Context, name string) (int64, error) {
		return object(ctx, key+name, path.Join(c.Path, name))
	})
}

// putObject copies a file to an object.
func putObject(ctx context.Context, client *minio.Core, bucket, key string, root *os.Root, name string, moved func()) (int64, error) {
	f, size, err := openFile(root, name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if size > maxSize {
		return 0, fmt.Errorf("%s has %d bytes, at most %d are copied", name, size, int64(maxSize))
	}
	info, err := client.Client.PutObject(ctx, bucket, key, &progress{io.NewSectionReader(f, 0, size), moved}, size, minio.PutObjectOptions{})
	if err != nil {
		return 0, bucketError(err)
	}
	if info.Size != size {
		return 0, &temporaryError{err: fmt.Errorf("the server has %d bytes, want %d", info.Size, size)}
	}
	return size, nil
}

// bucketError classifies an error of S3.
func bucketError(err error) error {
	answer := minio.ToErrorResponse(err)
	switch code := answer.StatusCode; {
	case checkpoint.Refused(err):
		return fmt.Errorf("%w: %w", checkpoint.ErrCredentials, err)
	case answer.Code == minio.NoSuchKey, code == 404:
		return fmt.Errorf("there is no such object: %w", err)
	case code >= 400 && code < 500 && code != 408 && code != 429:
		return err
	case errors.Is(err, errForbidden):
		return cause(err)
	}
	return &temporaryError{err: cause(err)}
}
