package jobspec

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/greylag/greylag/pkg/accounting"
)

// SubmitRequest is a greylag.v1.SubmitRequest for one job.
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
	return accounting.Credits(micro).Short() + " credits are set aside for it"
}

// Line is what gsubmit prints about it.
func (s Submitted) Line(parsable bool) string {
	switch {
	case parsable:
		return fmt.Sprintf("%d\n", s.ID)
	case s.ArraySize > 0:
		noun := "elements"
		if s.ArraySize == 1 {
			noun = "element"
		}
		return fmt.Sprintf("submitted array %d (%d %s)\n", s.ID, s.ArraySize, noun)
	}
	return fmt.Sprintf("submitted job %d\n", s.ID)
}

// errAnswer marks bytes that are no answer to the submission of one job.
var errAnswer = errors.New("not an answer to the submission of one job")

// ReadAnswer reads a greylag.v1.SubmitResponse.
func ReadAnswer(answer []byte) (Submitted, error) {
	var s Submitted
	jobs := 0
	err := fields(answer, func(field protowire.Number, n uint64, bytes []byte) error {
		switch field {
		case 1:
			jobs++
			return fields(bytes, func(field protowire.Number, n uint64, _ []byte) error {
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
func fields(m []byte, f func(field protowire.Number, n uint64, bytes []byte) error) error {
	for len(m) > 0 {
		field, kind, size := protowire.ConsumeTag(m)
		if size < 0 {
			return errAnswer
		}
		m = m[size:]
		var n uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(m)
		case protowire.BytesType:
			bytes, size = protowire.ConsumeBytes(m)
		default:
			size = protowire.ConsumeFieldValue(field, kind, m)
		}
		if size < 0 {
			return errAnswer
		}
		m = m[size:]
		if kind == protowire.VarintType || kind == protowire.BytesType {
			if err := f(field, n, bytes); err != nil {
				return err
			}
		}
	}
	return nil
}
