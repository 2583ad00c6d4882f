package state

import (
	"crypto/sha256"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// blobLife is how long a blob that no active job names may still be named without
// being sent again: long enough for a client that has looked before it submits,
// and for a user who submits the same script again.
const blobLife = time.Hour

// blobUse is what the state knows of a blob; its content is in the archive.
type blobUse struct {
	jobs int64           // active jobs that name it; an index
	idle cluster.Instant // since when there are none; 0 while there are some
}

// contents are the blobs that a command carries, by digest.
type contents map[cluster.Digest][]byte

func contentsOf(blobs [][]byte) contents {
	if len(blobs) == 0 {
		return nil
	}
	c := make(contents, len(blobs))
	for _, b := range blobs {
		c[sha256.Sum256(b)] = b
	}
	return c
}

// hasBlob reports whether a job may name the digest.
func (s *State) hasBlob(d cluster.Digest, carried contents) bool {
	_, comes := carried[d]
	return comes || d.IsZero() || s.blobs.Has(d)
}

// useBlobs counts n more jobs (fewer, when negative) that name the blobs of spec,
// and stores the contents that are new. A blob that no job names is idle from now.
func (s *State) useBlobs(spec *cluster.JobSpec, n int64, carried contents) {
	s.useBlob(spec.Script, n, carried)
	s.useBlob(spec.Environment, n, carried)
}

func (s *State) useBlob(d cluster.Digest, n int64, carried contents) {
	if d.IsZero() {
		return
	}
	u, known := s.blobs.Get(d)
	// A content that comes is stored even if the digest is known: the controller that
	// attached it did not find it in its archive.
	if content, comes := carried[d]; comes {
		s.effects.Blobs = append(s.effects.Blobs, Blob{Digest: d, Content: content})
	}
	was := u
	u.jobs += n
	u.idle = 0
	if u.jobs == 0 {
		u.idle = s.now
	}
	s.blobs.Set(d, u)
	if known && was.idle == u.idle {
		return
	}
	if known {
		s.digest ^= s.hashBlob(d, was)
		if was.jobs == 0 {
			s.idle.Delete(idleBlob{was.idle, d})
		}
	}
	s.digest ^= s.hashBlob(d, u)
	if u.jobs == 0 {
		s.idle.Set(idleBlob{u.idle, d}, none{})
	}
}

// forgetBlobs drops digests that no job has named for long.
func (s *State) forgetBlobs(most int) {
	for ; most > 0; most-- {
		b, _, found := s.idle.First()
		if !found || b.since.Add(blobLife) > s.now {
			return
		}
		u, _ := s.blobs.Delete(b.digest)
		s.idle.Delete(b)
		s.digest ^= s.hashBlob(b.digest, u)
	}
}

// incomplete is the answer to a submission that names a blob which is not there.
func incomplete(what string) *command.Refusal {
	return refuse(command.Incomplete, "the job's "+what+" has to be sent again", "submit once more")
}
