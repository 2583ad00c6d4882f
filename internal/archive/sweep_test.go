package archive

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// swept returns an archive of n blobs of 1000 bytes, named by their numbers.
type swept struct {
	*Archive
	t       *testing.T
	digests []cluster.Digest
	active  map[cluster.Digest]bool
	now     time.Time
}

func newSwept(t *testing.T, n int) *swept {
	a, err := Open(t.TempDir(), Options{Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	s := &swept{Archive: a, t: t, active: map[cluster.Digest]bool{}, now: time.Unix(1_000_000_000, 0)}
	for i := range n {
		content := fmt.Appendf(make([]byte, 990), "%010d", i)
		s.digests = append(s.digests, sha256.Sum256(content))
		if err := a.Append(uint64(i+1), nil, []Blob{{s.digests[i], content}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Sync(); err != nil {
		t.Fatal(err)
	}
	return s
}

// sweep sweeps and lists the remaining blobs.
func (s *swept) sweep(keep Keep) (left []int) {
	s.t.Helper()
	did, err := s.Sweep(cluster.InstantOf(s.now), keep, func(d cluster.Digest) bool { return s.active[d] })
	if err != nil {
		s.t.Fatal(err)
	}
	for i, d := range s.digests {
		if _, ok, err := s.Blob(d); err != nil {
			s.t.Fatal(err)
		} else if ok {
			left = append(left, i)
		}
	}
	if did.Kept != len(left) || did.KeptBytes != int64(1000*len(left)) {
		s.t.Errorf("it says %+v, and %d are left", did, len(left))
	}
	return left
}

func (s *swept) want(got []int, want ...int) {
	s.t.Helper()
	if !slices.Equal(got, want) {
		s.t.Errorf("left are %v, want %v", got, want)
	}
}

// TestSweepByAge checks that contents without a job are deleted after keep.Age, counted again after
// a new use.
func TestSweepByAge(t *testing.T) {
	s := newSwept(t, 5)
	s.active[s.digests[0]], s.active[s.digests[1]] = true, true
	keep := Keep{Age: time.Hour}
	s.want(s.sweep(keep), 0, 1, 2, 3, 4)
	s.now = s.now.Add(59 * time.Minute)
	s.active[s.digests[2]] = true
	delete(s.active, s.digests[1])
	s.want(s.sweep(keep), 0, 1, 2, 3, 4)
	s.now = s.now.Add(time.Minute)
	s.want(s.sweep(keep), 0, 1, 2)
	delete(s.active, s.digests[2])
	s.now = s.now.Add(59 * time.Minute)
	s.want(s.sweep(keep), 0, 2)
	s.now = s.now.Add(time.Hour)
	s.want(s.sweep(keep), 0)
	s.want(s.sweep(Keep{}), 0)
}

// TestSweepBySize checks that the oldest are deleted until the rest fits, and that contents of jobs
// stay although they do not fit.
func TestSweepBySize(t *testing.T) {
	s := newSwept(t, 6)
	s.active[s.digests[0]] = true
	s.active[s.digests[5]] = true
	s.sweep(Keep{})
	delete(s.active, s.digests[5])
	s.now = s.now.Add(time.Minute)
	s.want(s.sweep(Keep{Bytes: 6000}), 0, 1, 2, 3, 4, 5)
	s.want(s.sweep(Keep{Bytes: 2500}), 0, 5)
	s.want(s.sweep(Keep{Bytes: 1}), 0)
}

// TestSweepAsksOnceMore checks that a content that is needed again before its deletion stays.
func TestSweepAsksOnceMore(t *testing.T) {
	s := newSwept(t, 3)
	s.sweep(Keep{})
	s.now = s.now.Add(time.Hour)
	asked := map[cluster.Digest]int{}
	_, err := s.Sweep(cluster.InstantOf(s.now), Keep{Age: time.Minute}, func(d cluster.Digest) bool {
		asked[d]++
		return d == s.digests[1] && asked[d] > 1
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, false} {
		if _, ok, _ := s.Blob(s.digests[i]); ok != want {
			t.Errorf("blob %d is there: %v", i, ok)
		}
	}
	// A deleted content that returns is stored again.
	content := fmt.Appendf(make([]byte, 990), "%010d", 0)
	if err := s.Append(9, nil, []Blob{{s.digests[0], content}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := s.Blob(s.digests[0]); !ok {
		t.Error("a content that came again is not there")
	}
}

// TestSweepMany sweeps more blobs than one transaction reads.
func TestSweepMany(t *testing.T) {
	s := newSwept(t, 2*sweepChunk+100)
	s.active[s.digests[7]] = true
	s.sweep(Keep{})
	s.now = s.now.Add(time.Hour)
	s.want(s.sweep(Keep{Age: time.Minute}), 7)
}
