package archive

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// swept is an archive of n blobs of 1000 bytes, named by their numbers.
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

// sweep sweeps and lists which blobs are left.
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

// What no job needs goes when it has not been needed for long; what came back into use
// begins anew.
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

// The oldest go until the rest fits; what jobs need stays though it does not fit.
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

// A content that is needed again between the look and the deletion stays.
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
	// One that was deleted and comes again is stored again.
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

// More blobs than one transaction takes.
func TestSweepMany(t *testing.T) {
	s := newSwept(t, 2*sweepChunk+100)
	s.active[s.digests[7]] = true
	s.sweep(Keep{})
	s.now = s.now.Add(time.Hour)
	s.want(s.sweep(Keep{Age: time.Minute}), 7)
}
