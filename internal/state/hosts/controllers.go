package hosts

import (
	"iter"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// Limits of the controller records. A record stays after its member was removed, so that
// the ID is refused permanently.
const (
	maxMembers    = 10_000
	maxMemberID   = 64
	maxMemberName = 253
)

// Controller is the record of a controller. Membership and votes are in the log's configuration
// only.
type Controller struct {
	Name    string          // of its host, in its certificate; "" if unknown
	Retired cluster.Instant // when it was removed; 0: it was not
}

// Controller returns the record of a controller by its ID in the log. O(log n).
func (x *Hosts) Controller(id string) (Controller, bool) { return x.controllers.Get(id) }

// Controllers yields the records of all controllers by ID, including removed ones.
func (x *Hosts) Controllers() iter.Seq2[string, Controller] { return x.controllers.All() }

// RecordController records a controller. known reports whether the record exists already.
func (x *Hosts) RecordController(c *command.RecordMember) (refusal *command.Refusal, known bool) {
	old, known := x.controllers.Get(c.ID)
	switch {
	case !wellNamed(c.ID, maxMemberID) || !wellNamed(c.Name, maxMemberName):
		return unnamed(), false
	case old.Retired != 0:
		return retired(c.ID), false
	case !known && x.controllers.Len() >= maxMembers:
		return full(), false
	}
	if known = known && old.Name == c.Name; !known {
		x.controllers.Set(c.ID, Controller{Name: c.Name})
	}
	return nil, known
}

// RetireController records that a controller was removed, and revokes its certificates unless
// its host has another controller. again reports that it was removed before.
func (x *Hosts) RetireController(now cluster.Instant, c *command.RetireMember) (refusal *command.Refusal, again bool) {
	m, known := x.controllers.Get(c.ID)
	switch {
	case !c.Actor.Has(command.RoleAdmin):
		return denied(c.Actor, "remove controllers"), false
	case !wellNamed(c.ID, maxMemberID) || c.Name != "" && !wellNamed(c.Name, maxMemberName):
		return unnamed(), false
	case m.Retired != 0:
		return nil, true
	case !known && x.controllers.Len() >= maxMembers:
		return full(), false
	}
	if m.Retired = now; c.Name != "" {
		m.Name = c.Name
	}
	x.controllers.Set(c.ID, m)
	if m.Name != "" && !x.controllerNamed(m.Name) {
		x.Revoke(now, "controller", m.Name, c.Actor.Identity.User, "the controller was removed")
	}
	return nil, false
}

func full() *command.Refusal {
	return command.Refusef(command.Exhausted, "the limit of %d controller records is reached", maxMembers)
}

func unnamed() *command.Refusal {
	return command.Refuse(command.InvalidArgument, "a controller needs an ID and a host name of printable ASCII characters without spaces", "")
}

// controllerNamed reports whether a host of that name has a controller that was not removed. O(controllers).
// A host that lost its data waits under a new id before its old one is removed.
func (x *Hosts) controllerNamed(name string) bool {
	for _, m := range x.controllers.All() {
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

func controllerFields(c *codec.Coder, m *Controller) {
	codec.String(c, &m.Name)
	codec.Int(c, &m.Retired)
}
