//go:build linux

package local

import (
	"crypto/subtle"
	"os"

	"github.com/greylag/greylag/internal/burst"
)

// identify accepts the content of the identity file of a running instance, which only root can read.
func identify(s *store, q *burst.Question) (*burst.Answer, error) {
	if q.Identity == nil {
		return nil, fail(burst.FailureInvalid, "the question has no identity")
	}
	x, err := s.read(q.Identity.Instance)
	if err != nil || x.Cluster != q.Cluster || !s.running(x.ID) {
		return nil, fail(burst.FailureNotProved, "no instance %q runs", q.Identity.Instance)
	}
	text, err := os.ReadFile(s.path(x.ID, identityFile))
	if err != nil {
		return nil, err
	}
	if len(text) == 0 || subtle.ConstantTimeCompare(text, []byte(q.Identity.Document)) != 1 {
		return nil, fail(burst.FailureNotProved, "the document is not that of %s", x.ID)
	}
	return &burst.Answer{}, nil
}
