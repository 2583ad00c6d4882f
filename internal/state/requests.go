package state

import (
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// requestLife is how long an answer is remembered, in log time. Clients retry for
// seconds; a day also covers a script that is run again by hand.
const requestLife = 24 * time.Hour

// request is one remembered answer. They are numbered in the order they came.
type request struct {
	id     command.RequestID
	at     cluster.Instant
	answer string // as command.EncodeResult writes it
}

// repeated answers a request that came before: as the first time when it asks the
// same, with a refusal when it does not. The answer is nil for a new one.
func (s *State) repeated(id command.RequestID) command.Result {
	if id == (command.RequestID{}) {
		return nil
	}
	number, known := s.requestOf[id.Key]
	if !known {
		return nil
	}
	r, _ := s.requests.Get(number)
	if r.id.Payload != id.Payload {
		return refuse(command.Mismatch, "this request id was used before for another request", "use a new request id for a new request")
	}
	result, err := command.DecodeResult([]byte(r.answer))
	if err != nil {
		s.fault("remembered answer %d: %w", number, err)
		return refuse(command.Internal, "the first answer to this request cannot be read", "look whether it was carried out before asking again")
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

// remember keeps the answer to a request and returns it. Refusals that follow
// from the command alone need not be kept: they are the same every time.
func (s *State) remember(id command.RequestID, answer command.Result) command.Result {
	if id == (command.RequestID{}) {
		return answer
	}
	r := request{id: id, at: s.now, answer: string(command.EncodeResult(answer))}
	number := s.nextRequest
	s.nextRequest++
	s.requests.Set(number, r)
	s.requestOf[id.Key] = number
	s.requestBytes += len(r.answer)
	s.digest ^= s.hashRequest(number, r)
	for s.requests.Len() > s.limits.requests || s.requestBytes > s.limits.requestBytes {
		s.dropRequest()
	}
	return answer
}

// forgetRequests drops the oldest ones whose time is over.
func (s *State) forgetRequests(most int) {
	for ; most > 0; most-- {
		if _, r, found := s.requests.First(); !found || r.at.Add(requestLife) > s.now {
			return
		}
		s.dropRequest()
	}
}

// dropRequest drops the oldest one.
func (s *State) dropRequest() {
	number, r, _ := s.requests.First()
	s.requests.Delete(number)
	delete(s.requestOf, r.id.Key)
	s.requestBytes -= len(r.answer)
	s.digest ^= s.hashRequest(number, r)
}
