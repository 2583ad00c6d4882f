package wire

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// The reverse of AppendBrief. Generated code allocates ten times for each job, and most jobs of a
// queue have much in common: ReadList compares each job of a page with the one before and shares
// equal parts. A test compares it with generated code.

// ReadList is proto.Unmarshal into an empty ListJobsResponse, several times as fast for jobs with
// only the fields of a brief listing. The result must not be changed: jobs share messages, and
// texts share one piece of memory. O(size).
func ReadList(data []byte, p *greylagv1.ListJobsResponse) error {
	var jobs []span
	var rest []byte // of the fields other than jobs
	for at := 0; at < len(data); {
		n, kind, tag := protowire.ConsumeTag(data[at:])
		if tag < 0 {
			return badList(tag)
		}
		size := protowire.ConsumeFieldValue(n, kind, data[at+tag:])
		if size < 0 {
			return badList(size)
		}
		if end := at + tag + size; n == listJobs && kind == protowire.BytesType {
			body, _ := protowire.ConsumeBytes(data[at+tag:])
			jobs = append(jobs, span{end - len(body), end})
		} else {
			rest = append(rest, data[at:end]...)
		}
		at += tag + size
	}
	if err := proto.Unmarshal(rest, p); err != nil {
		return err
	}
	r := briefReader{data: data, text: string(data)}
	made := make([]greylagv1.Job, len(jobs))
	p.Jobs = make([]*greylagv1.Job, len(jobs))
	for i, body := range jobs {
		j := &made[i]
		p.Jobs[i] = j
		if r.job(body, j) {
			r.last = j
			continue
		}
		proto.Reset(j)
		if err := proto.Unmarshal(data[body.from:body.to], j); err != nil {
			return err
		}
	}
	return nil
}

func badList(code int) error { return fmt.Errorf("a list of jobs: %w", protowire.ParseError(code)) }

// span is a part of a message.
type span struct{ from, to int }

// briefReader reads the jobs of one message.
type briefReader struct {
	data []byte
	text string         // the same
	last *greylagv1.Job // the previous one; nil for none

	request                            shared[greylagv1.Request]
	limit                              shared[durationpb.Duration]
	submitted, planned, started, ended shared[timestamppb.Timestamp]
}

// shared is a message that consecutive jobs have in common.
type shared[T any] struct {
	text string // its encoded form
	is   *T
}

// read reads a message, or returns the one read last if the bytes are equal; false if it is
// malformed.
func read[T any, M interface {
	*T
	proto.Message
}](s *shared[T], text string, data []byte, into **T) bool {
	if s.is == nil || s.text != text {
		made := new(T)
		if proto.Unmarshal(data, M(made)) != nil {
			return false
		}
		s.text, s.is = text, made
	}
	*into = s.is
	return true
}

// job reads a job, and reports false for one that is not brief, or not as AppendBrief writes it:
// each field once, in order. Generated code then reads it.
func (r *briefReader) job(body span, j *greylagv1.Job) bool {
	before := protowire.Number(0)
	for at := body.from; at < body.to; {
		n, kind, tag := protowire.ConsumeTag(r.data[at:body.to])
		if tag < 0 || n < before || n == before && n != jobNodes {
			return false
		}
		before = n
		at += tag
		var size int
		switch kind {
		case protowire.VarintType:
			var v uint64
			if v, size = protowire.ConsumeVarint(r.data[at:body.to]); size < 0 || !amount(j, n, v) {
				return false
			}
		case protowire.BytesType:
			var value []byte
			if value, size = protowire.ConsumeBytes(r.data[at:body.to]); size < 0 {
				return false
			}
			end := at + size
			if !r.label(j, n, r.text[end-len(value):end]) && !r.message(j, n, span{end - len(value), end}) {
				return false
			}
		default:
			return false
		}
		at += size
	}
	return true
}

func amount(j *greylagv1.Job, n protowire.Number, v uint64) bool {
	switch n {
	case jobID:
		j.Id = v
	case jobArrayID:
		j.ArrayId = v
	case jobArrayIndex:
		j.ArrayIndex = int32(v)
	case jobArrayLimit:
		j.ArrayLimit = int32(v)
	case jobState:
		j.State = greylagv1.JobState(v)
	case jobReason:
		j.Reason = greylagv1.Reason(v)
	case jobAlso:
		j.Also = int32(v)
	case jobPromised:
		j.Promised = protowire.DecodeBool(v)
	default:
		return false
	}
	return true
}

// label reads a text.
func (r *briefReader) label(j *greylagv1.Job, n protowire.Number, v string) bool {
	field := textOf(j, n)
	if field == nil {
		return false
	}
	if r.last != nil {
		if same := *textOf(r.last, n); same == v {
			*field = same
			return true
		}
	}
	*field = v
	return utf8.ValidString(v)
}

func textOf(j *greylagv1.Job, n protowire.Number) *string {
	switch n {
	case jobRef:
		return &j.Ref
	case jobName:
		return &j.Name
	case jobUser:
		return &j.User
	case jobAccount:
		return &j.Account
	case jobPartition:
		return &j.Partition
	case jobQOS:
		return &j.Qos
	}
	return nil
}

// message reads a message within a job.
func (r *briefReader) message(j *greylagv1.Job, n protowire.Number, body span) bool {
	data, text := r.data[body.from:body.to], r.text[body.from:body.to]
	switch n {
	case jobRequest:
		return read(&r.request, text, data, &j.Request)
	case jobTimeLimit:
		return read(&r.limit, text, data, &j.TimeLimit)
	case jobSubmitted:
		return read(&r.submitted, text, data, &j.Submitted)
	case jobPlanned:
		return read(&r.planned, text, data, &j.Planned)
	case jobStarted:
		return read(&r.started, text, data, &j.Started)
	case jobEnded:
		return read(&r.ended, text, data, &j.Ended)
	case jobNodes:
		node := new(greylagv1.NodeAllocation)
		j.Nodes = append(j.Nodes, node)
		return proto.Unmarshal(data, node) == nil
	}
	return false
}
