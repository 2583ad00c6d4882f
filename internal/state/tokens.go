package state

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// token is a one-time join token, known by its hash. A used one is kept until it
// expires, so that a second use can be told from a wrong token.
type token struct {
	kind    command.TokenKind
	expires cluster.Instant
	usedBy  string // program that joined with it; "" while it is unused
}

// maxTokens bounds the tokens that have not expired.
const maxTokens = 100_000

func (s *State) createToken(c *command.CreateToken) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	switch {
	case c.Kind < command.NodeToken || c.Kind > command.AuthToken:
		return refusef(command.InvalidArgument, "unknown kind of join token %d", c.Kind)
	case c.Hash.IsZero():
		return refuse(command.InvalidArgument, "a join token needs a hash", "")
	}
	s.dropTokens()
	switch {
	case !allowed(c.Actor, command.RoleAdmin):
		return s.remember(c.Request, refusef(command.Denied, "%s may not make join tokens: that needs the role admin", c.Actor.Identity.User))
	case c.Expires <= s.now:
		return s.remember(c.Request, refuse(command.InvalidArgument, "the join token would already have expired", "look at the clocks of the controllers"))
	case s.tokens.Len() >= maxTokens:
		return s.remember(c.Request, refusef(command.Exhausted, "there are %d join tokens already", maxTokens))
	case s.tokens.Has(c.Hash):
		return s.remember(c.Request, refuse(command.Conflict, "this join token exists already", "make another one"))
	}
	s.putToken(c.Hash, token{kind: c.Kind, expires: c.Expires})
	return s.remember(c.Request, &command.Done{Version: s.index})
}

func (s *State) useToken(c *command.UseToken) command.Result {
	t, known := s.tokens.Get(c.Hash)
	const again = "make a new one with gctl cluster token"
	switch {
	case !known || t.expires <= s.now:
		return refuse(command.NotFound, "the join token is unknown or has expired", again)
	case t.kind != c.Kind:
		return refuse(command.InvalidArgument, "the join token is for another kind of program", again)
	case t.usedBy == c.Name && c.Name != "":
		return &command.Done{Version: s.index} // the first answer got lost
	case t.usedBy != "":
		return refuse(command.Conflict, "the join token was used by "+t.usedBy, again)
	case c.Name == "" || len(c.Name) > maxNodeName:
		return refuse(command.InvalidArgument, "who joins has no name, or too long a one", "")
	}
	t.usedBy = c.Name
	s.putToken(c.Hash, t)
	return &command.Done{Version: s.index}
}

func (s *State) putToken(hash cluster.Digest, t token) {
	if old, found := s.tokens.Get(hash); found {
		s.digest ^= s.hashToken(hash, old)
	}
	s.tokens.Set(hash, t)
	s.digest ^= s.hashToken(hash, t)
}

// dropTokens drops those that have expired. O(tokens), of which there are few.
func (s *State) dropTokens() {
	over := s.tokens.Clone()
	for hash, t := range over.All() {
		if t.expires <= s.now {
			s.tokens.Delete(hash)
			s.digest ^= s.hashToken(hash, t)
		}
	}
}
