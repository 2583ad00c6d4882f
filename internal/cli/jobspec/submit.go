package jobspec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/greylag/greylag/pkg/accounting"
)

// SubmitRequest is a greylag.v1.SubmitJobsRequest for one job.
func SubmitRequest(id string, spec []byte) []byte {
	m := make(message, 0, len(spec)+len(id)+16)
	m.text(1, id)
	m.child(2, spec)
	return m
}

// Submitted is what a submission of one job was answered.
type Submitted struct {
	ID        uint64
	ArraySize int32
	Warnings  bool  // there are some
	SetAside  int64 // micro-credits
}

// SetAside is the sentence about what was set aside.
func SetAside(micro int64) string {
	return accounting.Credits(micro).Short() + " credits are set aside for the job"
}

// Line is what gsubmit prints about it.
func (s Submitted) Line(parsable bool) string {
	id := strconv.FormatUint(s.ID, 10)
	switch {
	case parsable:
		return id + "\n"
	case s.ArraySize > 0:
		noun := "elements"
		if s.ArraySize == 1 {
			noun = "element"
		}
		return fmt.Sprintf("submitted array %s (%d %s)\n", id, s.ArraySize, noun)
	}
	return "submitted job " + id + "\n"
}

// errAnswer marks bytes that are no answer to the submission of one job.
var errAnswer = errors.New("not an answer to the submission of one job")

// ReadAnswer reads a greylag.v1.SubmitJobsResponse.
func ReadAnswer(answer []byte) (Submitted, error) {
	var s Submitted
	jobs := 0
	err := fields(answer, func(field, n uint64, bytes []byte) error {
		switch field {
		case 1:
			jobs++
			return fields(bytes, func(field, n uint64, _ []byte) error {
				switch field {
				case 1:
					s.ID = n
				case 2:
					s.ArraySize = int32(n)
				}
				return nil
			})
		case 3:
			s.Warnings = true
		case 4:
			s.SetAside = int64(n)
		}
		return nil
	})
	if err == nil && (jobs != 1 || s.ID == 0) {
		err = errAnswer
	}
	return s, err
}

// fields calls f with each field of a message that is a number or bytes, and skips
// others.
func fields(m []byte, f func(field, n uint64, bytes []byte) error) error {
	for len(m) > 0 {
		tag, size := binary.Uvarint(m)
		if size <= 0 || tag>>3 == 0 {
			return errAnswer
		}
		m = m[size:]
		var n uint64
		var bytes []byte
		kind := tag & 7
		switch kind {
		case kindVarint, kindBytes:
			if n, size = binary.Uvarint(m); size <= 0 {
				return errAnswer
			}
			m = m[size:]
		case kindFixed4:
			n = 4
		case kindFixed8:
			n = 8
		default:
			return errAnswer
		}
		if kind != kindVarint {
			if n > uint64(len(m)) {
				return errAnswer
			}
			bytes, m = m[:n], m[n:]
		}
		if kind == kindVarint || kind == kindBytes {
			if err := f(tag>>3, n, bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// SlurmVersion is the line that programs with Slurm's names print for --version. Tools read the numbers
// and decide by them what they may use.
const SlurmVersion = "slurm 24.11.0"

// SbatchLine is what sbatch prints about a job. cluster is its name where --clusters is given.
func SbatchLine(id uint64, parsable, quiet bool, cluster string) string {
	switch {
	case parsable && cluster != "":
		return fmt.Sprintf("%d;%s\n", id, cluster)
	case parsable:
		return fmt.Sprintf("%d\n", id)
	case quiet:
		return ""
	case cluster != "":
		return fmt.Sprintf("Submitted batch job %d on cluster %s\n", id, cluster)
	}
	return fmt.Sprintf("Submitted batch job %d\n", id)
}
