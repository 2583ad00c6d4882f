package state

import (
	"crypto/sha256"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bounds of blobs that come in parts.
const (
	maxUploads   = 64
	maxBlob      = 5 << 20
	uploadLife   = 10 * time.Minute // between two parts
	maxBlobParts = 1024
)

// upload is a blob of which parts have come. Like every value of a table it is
// replaced, never changed.
type upload struct {
	size  int64
	at    cluster.Instant // of the newest part
	parts [][]byte
	got   int64  // bytes in parts
	sum   uint64 // of the parts; with got it follows from them
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

// putBlob takes in one part of a blob. Repeated parts change nothing, a first part
// begins anew.
func (s *State) putBlob(c *command.PutBlob) command.Result {
	u, begun := s.uploads.Get(c.Digest)
	switch {
	case c.Digest.IsZero() || c.Size < 1 || c.Size > maxBlob || c.Offset < 0 || len(c.Part) == 0 || int64(len(c.Part)) > c.Size:
		return refusef(command.InvalidArgument, "a part of %d bytes at %d of a blob of %d, which may have %d", len(c.Part), c.Offset, c.Size, maxBlob)
	case c.Offset > 0 && !begun && s.blobs.Has(c.Digest): // a repetition after the last part
		s.useBlob(c.Digest, 0, nil) // it stays for the job that comes
		return &command.Done{Version: s.index}
	case c.Offset == 0:
		s.dropUpload(c.Digest)
		u, begun = upload{size: c.Size}, true
	}
	switch {
	case !begun || u.size != c.Size || c.Offset > u.got:
		return refuse(command.Conflict, "an earlier part of the blob is missing", "send it again from the beginning")
	case c.Offset < u.got:
		return &command.Done{Version: s.index} // a repetition
	case u.got+int64(len(c.Part)) > u.size || len(u.parts) >= maxBlobParts:
		return refuse(command.InvalidArgument, "the parts of the blob are more than its size, or too many", "send it again from the beginning")
	}
	s.dropUploads()
	if !s.uploads.Has(c.Digest) && s.uploads.Len() >= maxUploads {
		return refusef(command.Exhausted, "%d scripts or environments are being sent already", maxUploads)
	}
	s.dropUpload(c.Digest)
	u = u.with(c.Part, s.now)
	if u.got == u.size {
		return s.completeBlob(c.Digest, u)
	}
	s.uploads.Set(c.Digest, u)
	s.digest ^= s.hashUpload(c.Digest, u)
	return &command.Done{Version: s.index}
}

// completeBlob makes a blob of its parts.
func (s *State) completeBlob(d cluster.Digest, u upload) command.Result {
	content := make([]byte, 0, u.got)
	for _, p := range u.parts {
		content = append(content, p...)
	}
	if sha256.Sum256(content) != d {
		return refuse(command.InvalidArgument, "the content of the blob does not have the digest it was announced with", "send it again from the beginning")
	}
	s.useBlob(d, 0, contents{d: content})
	return &command.Done{Version: s.index}
}

// dropUpload forgets the parts of a blob, if there are any.
func (s *State) dropUpload(d cluster.Digest) {
	if u, found := s.uploads.Delete(d); found {
		s.digest ^= s.hashUpload(d, u)
	}
}

// dropUploads forgets the parts of blobs that nobody goes on with. O(maxUploads).
func (s *State) dropUploads() {
	all := s.uploads.Clone()
	for d, u := range all.All() {
		if u.at.Add(uploadLife) <= s.now {
			s.dropUpload(d)
		}
	}
}
