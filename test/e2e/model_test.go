package e2e

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// operation is a client's request about one job, and the answer. A job is identified by the request
// ID of its submission, since that exists before the job does.
type operation struct {
	key  string
	kind opKind
	text string // set: the comment that was written
}

type opKind int

const (
	opSubmit opKind = iota
	opSet           // write the comment
	opCancel
	opGet
)

func (k opKind) String() string { return [...]string{"submit", "set", "cancel", "get"}[k] }

// answer is the result. Unknown means that none arrived: the operation may have happened at any
// time since the request, or never.
type answer struct {
	unknown bool
	id      uint64
	refused bool // set and cancel: the job has ended
	missing bool // get: no such job
	state   string
	comment string
}

// jobModel is one job as its clients may see it.
type jobModel struct {
	id      uint64 // 0 while the submission has not happened
	ended   bool
	comment string
}

// model defines which answers are possible in which order: one job is a register (its comment) that
// is created once and closed once. Nothing ever runs, so a job is PENDING until it is cancelled.
func model() porcupine.Model {
	return porcupine.Model{
		Partition: byKey,
		Init:      func() any { return jobModel{} },
		Step: func(state, input, output any) (bool, any) {
			ok, next := state.(jobModel).step(input.(operation), output.(answer))
			return ok, next
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v -> %+v", in, out) },
	}
}

func byKey(history []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, op := range history {
		key := op.Input.(operation).key
		parts[key] = append(parts[key], op)
	}
	var list [][]porcupine.Operation
	for _, part := range parts {
		list = append(list, part)
	}
	return list
}

func (j jobModel) step(op operation, got answer) (bool, jobModel) {
	switch op.kind {
	case opSubmit:
		if j.id == 0 {
			j.id = got.id
			if got.unknown {
				j.id = anyID
			}
			return true, j
		}
		return got.unknown || j.isID(got.id), j.named(got.id)
	case opSet:
		if j.id == 0 || j.ended {
			return got.unknown || got.refused, j
		}
		j.comment = op.text
		return got.unknown || !got.refused, j
	case opCancel:
		if j.id == 0 || j.ended {
			return got.unknown || got.refused, j
		}
		j.ended = true
		return got.unknown || !got.refused, j
	default:
		if j.id == 0 || got.missing {
			return got.unknown || j.id == 0 && got.missing, j
		}
		state := "PENDING"
		if j.ended {
			state = "CANCELLED"
		}
		return got.unknown || j.isID(got.id) && got.state == state && got.comment == j.comment, j.named(got.id)
	}
}

// anyID is the ID of a job whose submission was never answered.
const anyID = ^uint64(0)

func (j jobModel) isID(id uint64) bool { return j.id == id || j.id == anyID }

func (j jobModel) named(id uint64) jobModel {
	if j.id == anyID && id != 0 {
		j.id = id
	}
	return j
}
