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
	usedBy  string          // program that joined with it; "" while it is unused
	name    string          // of the host that may use it; "" for any unused name
	replace bool            // the name may be in use
	by      string          // user that made it
	issued  cluster.Instant // issue time of the certificate that it was used for
}

// HasToken reports whether the state keeps a join token, used or not. O(log n).
func (v *View) HasToken(hash cluster.Digest) bool { return v.tokens.Has(hash) }

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
	if refusal := s.checkTokenName(c); refusal != nil {
		return refusal
	}
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
	if use := s.nameInUse(c.Kind.String(), c.Name); use != "" && !c.Replace {
		return s.remember(c.Request, inUse(c.Kind.String(), c.Name, use))
	}
	s.putToken(c.Hash, token{kind: c.Kind, expires: c.Expires, name: c.Name, replace: c.Replace, by: c.Actor.Identity.User})
	return s.remember(c.Request, &command.Done{Version: s.index})
}

// checkTokenName refuses an invalid host name.
func (s *State) checkTokenName(c *command.CreateToken) *command.Refusal {
	switch {
	case c.Replace && c.Name == "":
		return refuse(command.InvalidArgument, "a token with --replace needs the name of the host", "add --name NAME")
	case len(c.Name) > maxNodeName:
		return refusef(command.InvalidArgument, "a name has at most %d bytes", maxNodeName)
	case ReservedName(c.Name):
		return reserved(c.Name)
	}
	return nil
}

func reserved(name string) *command.Refusal {
	return hinting(refusef(command.InvalidArgument, "%q is a reserved word and cannot name a host", sanitize(name)), "choose another name: gctl join --name NAME")
}

// inUse refuses a name in use.
func inUse(role, name, use string) *command.Refusal {
	return hinting(refusef(command.Conflict, "the name %s is in use by another %s: %s", sanitize(name), role, use),
		"to join that host again or replace it, make its token with gctl cluster token --%s --name %s --replace", role, sanitize(name))
}

func (s *State) useToken(c *command.UseToken) command.Result {
	t, known := s.tokens.Get(c.Hash)
	const again = "make a new one with gctl cluster token"
	switch {
	case !known || t.expires <= s.now:
		return refuse(command.NotFound, "the join token is unknown or has expired", again)
	case t.kind != c.Kind:
		return refuse(command.InvalidArgument, "the join token is for another role", again)
	case t.usedBy == c.Name && c.Name != "":
		return s.joinRepeated(t, &c.Certificate)
	case t.usedBy != "":
		return refuse(command.Conflict, "the join token was used by "+t.usedBy, again)
	case c.Name == "" || len(c.Name) > maxNodeName:
		return refuse(command.InvalidArgument, "who joins has no name, or too long a one", "")
	}
	if refusal := s.joinName(t, &c.Certificate); refusal != nil {
		return refusal
	}
	t.usedBy, t.issued = c.Name, c.Certificate.Issued
	s.putToken(c.Hash, t)
	return &command.Done{Version: s.index}
}

// joinName records the certificate of a host that joins, if it may have the name.
func (s *State) joinName(t token, c *command.Certificate) *command.Refusal {
	if *c == (command.Certificate{}) {
		return nil // a token that was used before certificates were recorded
	}
	if c.Role != t.kind.String() {
		return refusef(command.InvalidArgument, "the join token is for another role")
	}
	if refusal := s.checkCertificate(c); refusal != nil {
		return refusal
	}
	use := s.nameInUse(c.Role, c.Name)
	switch {
	case ReservedName(c.Name):
		return reserved(c.Name)
	case t.name != "" && t.name != c.Name:
		return hinting(refusef(command.Denied, "the join token is for %s %s, not %s", c.Role, t.name, c.Name), "gctl join --name %s, or make a token for this host", t.name)
	case use != "" && !t.replace:
		return inUse(c.Role, c.Name, use)
	}
	if use == "" {
		return s.addCertificate(c)
	}
	h := CertificateHolder{Role: c.Role, Name: c.Name}
	if old, known := s.holders.Get(holderKey{c.Role, c.Name}); known {
		h = *old
	}
	if c.Issued > h.Newest() { // else addCertificate refuses
		h.RevokedThrough, h.RevokedAt, h.RevokedBy, h.Reason = c.Issued-1, s.now, t.by, "replaced by a host that joined"
		s.putHolder(&h)
	}
	return s.addCertificate(c)
}

// joinRepeated answers the host that used the token before: its first answer was lost.
func (s *State) joinRepeated(t token, c *command.Certificate) command.Result {
	if *c == (command.Certificate{}) {
		return &command.Done{Version: s.index}
	}
	h, known := s.holders.Get(holderKey{c.Role, c.Name})
	if known && h.Revoked(t.issued) {
		return revokedRefusal(h)
	}
	if refusal := s.checkCertificate(c); refusal != nil {
		return refusal
	}
	if refusal := s.addCertificate(c); refusal != nil {
		return refusal
	}
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
