package blobs

import (
	"bytes"
	"crypto/sha256"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// Limits of blobs that arrive in parts.
const (
	maxUploads   = 64
	maxBlob      = 5 << 20
	uploadLife   = 10 * time.Minute // between two parts
	maxBlobParts = 1024
)

// upload is a blob that arrived in part. Like every value of a table it is
// replaced, never changed.
type upload struct {
	size  int64
	at    cluster.Instant // of the newest part
	parts [][]byte
	got   int64  // bytes in parts
	sum   uint64 // of the parts: an index
}

// with is the upload with one more part.
func (u upload) with(part []byte, at cluster.Instant) upload {
	u.parts = append(u.parts[:len(u.parts):len(u.parts)], part)
	u.got += int64(len(part))
	d := xxhash.NewWithSeed(u.sum)
	_, _ = d.Write(part) // never fails
	u.sum = d.Sum64()
	u.at = at
	return u
}

func uploadFields(c *codec.Coder, u *upload) {
	codec.Int(c, &u.size)
	codec.Int(c, &u.at)
	codec.List(c, &u.parts, codec.Bytes)
}

// uploadDigest covers the parts by their sum, so that a part costs its own length only.
func uploadDigest(c *codec.Coder, u *upload) {
	codec.Int(c, &u.size)
	codec.Int(c, &u.at)
	codec.Int(c, &u.got)
	codec.Uint(c, &u.sum)
}

func (x *Blobs) readUpload(c *codec.Coder) {
	d, u := x.uploads.Decode(c)
	sum := upload{size: u.size}
	for _, part := range u.parts {
		sum = sum.with(part, u.at)
	}
	sum.at = u.at
	x.uploads.Set(d, sum)
}

// Put adds one part of a blob. A repeated part changes nothing; a first part starts over.
func (x *Blobs) Put(now cluster.Instant, c *command.PutBlob) *command.Refusal {
	u, begun := x.uploads.Get(c.Digest)
	switch {
	case c.Digest.IsZero() || c.Size < 1 || c.Size > maxBlob || c.Offset < 0 || len(c.Part) == 0 || int64(len(c.Part)) > c.Size:
		return command.Refusef(command.InvalidArgument, "a part of %d bytes at %d of a blob of %d bytes, at most %d", len(c.Part), c.Offset, c.Size, maxBlob)
	case c.Offset > 0 && !begun && x.blobs.Has(c.Digest): // a repetition after the last part
		x.use(now, c.Digest, 0, nil) // kept for the job that follows
		return nil
	case c.Offset == 0:
		x.uploads.Delete(c.Digest)
		u, begun = upload{size: c.Size}, true
	}
	switch {
	case !begun || u.size != c.Size || c.Offset > u.got:
		return command.Refuse(command.Conflict, "an earlier part of the blob is missing", "send it again from the beginning")
	case c.Offset < u.got:
		return nil // a repetition
	case u.got+int64(len(c.Part)) > u.size || len(u.parts) >= maxBlobParts:
		return command.Refuse(command.InvalidArgument, "the parts of the blob exceed its size or their limit", "send it again from the beginning")
	}
	x.DropUploads(now)
	if !x.uploads.Has(c.Digest) && x.uploads.Len() >= maxUploads {
		return command.Refusef(command.Exhausted, "%d scripts or environments are being sent already", maxUploads)
	}
	if u = u.with(c.Part, now); u.got < u.size {
		x.uploads.Set(c.Digest, u)
		return nil
	}
	x.uploads.Delete(c.Digest)
	content := bytes.Join(u.parts, nil)
	if sha256.Sum256(content) != c.Digest {
		return command.Refuse(command.InvalidArgument, "the content of the blob does not have the digest that was announced", "send it again from the beginning")
	}
	x.use(now, c.Digest, 0, Contents{c.Digest: content})
	return nil
}

// DropUploads drops the parts of blobs whose sender stopped. O(maxUploads).
func (x *Blobs) DropUploads(now cluster.Instant) {
	all := x.uploads.Map.Clone()
	for d, u := range all.All() {
		if u.at.Add(uploadLife) <= now {
			x.uploads.Delete(d)
		}
	}
}
