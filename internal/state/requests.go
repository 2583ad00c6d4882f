package state

import (
	"cmp"
	"maps"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// requestLife is how long an answer is kept, in log time. Clients retry for seconds; a day also
// covers a script that is run again manually.
const requestLife = 24 * time.Hour

// request is one stored answer.
type request struct {
	id     command.RequestID
	at     cluster.Instant
	answer string // as command.EncodeResult writes it
}

// requests holds the stored answers, numbered in the order of their arrival.
type requests struct {
	table.Table[uint64, request]
	next  uint64              // the next number
	byKey map[[16]byte]uint64 // index; nil in a clone
	bytes int                 // held by the answers
}

var requestSchema = table.Schema[uint64, request]{ // never written
	Kind: table.Requests, Compare: cmp.Compare[uint64], Key: codec.Uint[uint64], Fields: requestFields,
}

func requestFields(c *codec.Coder, r *request) {
	codec.Fixed(c, r.id.Key[:])
	codec.Fixed(c, r.id.Payload[:])
	codec.Int(c, &r.at)
	codec.String(c, &r.answer)
}

func newRequests(h *table.Hasher) requests {
	return requests{Table: table.New(&requestSchema, h), next: 1, byKey: map[[16]byte]uint64{}}
}

// clone returns requests that later writes to x do not change, and that store nothing. O(1).
func (x *requests) clone(h *table.Hasher) requests {
	return requests{Table: x.Table.Clone(h), next: x.next, bytes: x.bytes}
}

// add stores an answer, and drops the oldest ones beyond the limits.
func (x *requests) add(r request, l limits) {
	x.Set(x.next, r)
	x.byKey[r.id.Key] = x.next
	x.bytes += len(r.answer)
	x.next++
	for x.Len() > l.requests || x.bytes > l.requestBytes {
		x.dropOldest()
	}
}

// forget drops at most that many expired answers.
func (x *requests) forget(now cluster.Instant, most int) {
	for ; most > 0; most-- {
		if _, r, found := x.First(); !found || r.at.Add(requestLife) > now {
			return
		}
		x.dropOldest()
	}
}

func (x *requests) dropOldest() {
	number, r, _ := x.First()
	x.Delete(number)
	delete(x.byKey, r.id.Key)
	x.bytes -= len(r.answer)
}

func (x *requests) read(c *codec.Coder) {
	number, r := x.Decode(c)
	if _, duplicate := x.byKey[r.id.Key]; duplicate || number >= x.next {
		c.Fail("request %d is not well formed", number)
		return
	}
	x.byKey[r.id.Key] = number
	x.bytes += len(r.answer)
}

func (x *requests) check(fault func(string, ...any)) {
	size, byKey := 0, map[[16]byte]uint64{}
	for number, r := range x.All() {
		size += len(r.answer)
		byKey[r.id.Key] = number
		if number >= x.next {
			fault("request %d, the next is %d", number, x.next)
		}
	}
	if size != x.bytes || !maps.Equal(byKey, x.byKey) {
		fault("%d requests of %d bytes, %d are listed of %d", x.Len(), size, len(x.byKey), x.bytes)
	}
}

// Answered reports whether a request with that ID was carried out or refused, and its answer is stored.
// O(stored answers).
func (v *View) Answered(id command.RequestID) bool {
	if id == (command.RequestID{}) {
		return false
	}
	for _, r := range v.requests.All() {
		if r.id.Key == id.Key {
			return true
		}
	}
	return false
}

// repeated returns the stored answer of a known request ID, or a refusal if another request had
// that ID. The answer is nil for a new one.
func (s *State) repeated(id command.RequestID) command.Result {
	if id == (command.RequestID{}) {
		return nil
	}
	number, known := s.requests.byKey[id.Key]
	if !known {
		return nil
	}
	r, _ := s.requests.Get(number)
	if r.id.Payload != id.Payload {
		return command.Refuse(command.Mismatch, "this request ID was used before for another request", "use a new request ID for a new request")
	}
	result, err := command.DecodeResult([]byte(r.answer))
	if err != nil {
		s.fault("remembered answer %d: %w", number, err)
		return command.Refuse(command.Internal, "the first answer to this request cannot be read", "check whether it was carried out before you retry")
	}
	s.isRetry = true
	switch result := result.(type) {
	case *command.Submitted:
		result.Again = true
	case *command.Outcomes:
		result.Again = true
	}
	return result
}

// remember stores the answer to a request and returns it. Refusals that follow
// from the command alone need not be stored: they are the same every time.
func (s *State) remember(id command.RequestID, answer command.Result) command.Result {
	if id != (command.RequestID{}) {
		s.requests.add(request{id: id, at: s.now, answer: string(command.EncodeResult(answer))}, s.limits)
	}
	return answer
}

// once answers a request with the stored answer of a known ID, or with the result of do, which it
// stores if keep is true.
func (s *State) once(id command.RequestID, do func() (refusal *command.Refusal, keep bool)) command.Result {
	if again := s.repeated(id); again != nil {
		return again
	}
	refusal, keep := do()
	if !keep {
		return s.done(refusal)
	}
	return s.remember(id, s.done(refusal))
}

// done returns a refusal, or the answer to a command that was carried out.
func (s *State) done(refusal *command.Refusal) command.Result {
	if refusal != nil {
		return refusal
	}
	return &command.Done{Version: s.index}
}
