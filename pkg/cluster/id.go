package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// JobID identifies a job. The replicated state assigns IDs in ascending order and never reuses
// them. The elements of an array have consecutive IDs; the array's ID is that of its first element.
type JobID uint64

// String is the decimal form.
func (id JobID) String() string { return strconv.FormatUint(uint64(id), 10) }

// NoIndex is the array index of a job that is no array element.
const NoIndex int32 = -1

// JobRef names a job as users do: "123" (a job or a whole array) or "123_4"
// (one element of array 123).
type JobRef struct {
	ID    JobID
	Index int32 // NoIndex unless one element is meant
}

// ErrBadJobID is returned for a word that is not a job ID.
var ErrBadJobID = errors.New("not a job ID")

// ParseJobRef reads "123" or "123_4".
func ParseJobRef(word string) (JobRef, error) {
	head, tail, element := strings.Cut(word, "_")
	id, err := strconv.ParseUint(head, 10, 63)
	if err != nil || id == 0 {
		return JobRef{}, fmt.Errorf("%w: %q (want 123 or 123_4)", ErrBadJobID, word)
	}
	ref := JobRef{ID: JobID(id), Index: NoIndex}
	if element {
		index, err := strconv.ParseUint(tail, 10, 31)
		if err != nil {
			return JobRef{}, fmt.Errorf("%w: %q (want 123 or 123_4)", ErrBadJobID, word)
		}
		ref.Index = int32(index)
	}
	return ref, nil
}

// String is the form that [ParseJobRef] reads.
func (r JobRef) String() string {
	if r.Index == NoIndex {
		return r.ID.String()
	}
	return r.ID.String() + "_" + strconv.Itoa(int(r.Index))
}

// Attempt numbers the runs of a job from 1. (JobID, Attempt) is the fence: it starts at most once.
type Attempt uint32

// Digest is the SHA-256 of a script or an environment; the zero value means none.
type Digest [32]byte

// IsZero reports whether d is unset.
func (d Digest) IsZero() bool { return d == Digest{} }

// String returns the first 12 hexadecimal digits, enough to tell scripts apart.
func (d Digest) String() string { return fmt.Sprintf("%x", d[:6]) }
