package state

import (
	"iter"
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/pkg/cluster"
)

// Limits of the controller records. A record stays after its member was removed, so that
// the id is refused permanently.
const maxMembers, maxMemberID, maxMemberName = 10_000, 64, 253

// Member is the state's record of a controller. Membership and votes are in the log's
// configuration only.
type Member struct {
	Name    string          // of its host, in its certificate; "" if unknown
	Retired cluster.Instant // when it was removed; 0: it was not
}

// Member returns the record of a controller by its id in the log. O(log n).
func (v *View) Member(id string) (Member, bool) { return v.controllers.Get(id) }

// Members yields the records of all controllers by id, including removed ones.
func (v *View) Members() iter.Seq2[string, Member] { return v.controllers.All() }

func (s *State) recordMember(c *command.RecordMember) command.Result {
	old, known := s.controllers.Get(c.ID)
	switch {
	case !wellNamed(c.ID, maxMemberID) || !wellNamed(c.Name, maxMemberName):
		return refuse(command.InvalidArgument, "a controller needs an ID and a host name of printable ASCII characters without spaces", "")
	case old.Retired != 0:
		return retired(c.ID)
	case !known && s.controllers.Len() >= maxMembers:
		return refusef(command.Exhausted, "the limit of %d controller records is reached", maxMembers)
	}
	if s.isRetry = known && old.Name == c.Name; !s.isRetry {
		s.putMember(c.ID, Member{Name: c.Name})
	}
	return &command.Done{Version: s.index}
}

func (s *State) retireMember(c *command.RetireMember) command.Result {
	m, known := s.controllers.Get(c.ID)
	switch {
	case !allowed(c.Actor, command.RoleAdmin):
		return refusef(command.Denied, "%s may not remove controllers: requires role admin", c.Actor.Identity.User)
	case !wellNamed(c.ID, maxMemberID) || c.Name != "" && !wellNamed(c.Name, maxMemberName):
		return refuse(command.InvalidArgument, "a controller needs an ID and a host name of printable ASCII characters without spaces", "")
	case m.Retired != 0:
		s.isRetry = true // a retry after a crash
		return &command.Done{Version: s.index}
	case !known && s.controllers.Len() >= maxMembers:
		return refusef(command.Exhausted, "the limit of %d controller records is reached", maxMembers)
	}
	if m.Retired = s.now; c.Name != "" {
		m.Name = c.Name
	}
	s.putMember(c.ID, m)
	if m.Name != "" && !s.controllerNamed(m.Name) {
		s.revoke("controller", m.Name, c.Actor.Identity.User, "the controller was removed")
	}
	return &command.Done{Version: s.index}
}

// controllerNamed reports whether a host of that name has a controller that was not removed. O(controllers).
// A host that lost its data waits under a new id before its old one is removed.
func (s *State) controllerNamed(name string) bool {
	for _, m := range s.controllers.All() {
		if m.Name == name && m.Retired == 0 {
			return true
		}
	}
	return false
}

// retired refuses a member id that was removed.
func retired(id string) *command.Refusal {
	return &command.Refusal{Code: command.Conflict, Message: "member " + id + " was removed", Hint: command.RejoinHint}
}

// wellNamed reports whether a text is of 1 to most printable ASCII characters without spaces.
func wellNamed(text string, most int) bool {
	for _, b := range []byte(text) {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return text != "" && len(text) <= most
}

func (s *State) putMember(id string, m Member) {
	if old, found := s.controllers.Get(id); found {
		s.digest ^= s.hashMember(id, old)
	}
	s.controllers.Set(id, m)
	s.digest ^= s.hashMember(id, m)
}

func (s *State) hashMember(id string, m Member) uint64 {
	return hashRecord(s.hashes.named(hashMembers, id), &m, memberFields)
}

func memberFields(c *codec.Coder, m *Member) {
	codec.String(c, &m.Name)
	codec.Int(c, &m.Retired)
}

// encodeMembers writes no frame if there are no controller records.
func (v *View) encodeMembers(f *frames) {
	f.of(frameMembers)
	for id, m := range v.controllers.All() {
		record(f, &id, codec.String, &m, memberFields)
	}
}

func (x *restoring) readMember(c *codec.Coder) {
	var id string
	var m Member
	codec.String(c, &id)
	codec.Record(c, &m, memberFields)
	if !x.controllers.Set(id, m) {
		c.Fail("controller %q twice", id)
	}
}

// recountMembers recomputes the members' part of the digest.
func (s *State) recountMembers() (d uint64) {
	for id, m := range s.controllers.All() {
		d ^= s.hashMember(id, m)
	}
	return d
}

func newMembers() cow.Map[string, Member] { return cow.New[string, Member](strings.Compare) }
