package hosts

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// token is a join token, known by its hash. A used one is kept until it expires, so that a further
// use differs from a wrong token.
type token struct {
	kind    command.TokenKind
	expires cluster.Instant
	name    string // of the host that may use it; "" for any unused name
	replace bool   // the name may be in use
	by      string // user that made it
	uses    uint32 // hosts that may join with it
	used    []use  // hosts that joined with it; never written in place
}

// use is one host that joined with a token.
type use struct {
	by     string          // name of the host
	issued cluster.Instant // issue time of its first certificate
}

func tokenFields(c *codec.Coder, t *token) {
	codec.Uint(c, &t.kind)
	codec.Int(c, &t.expires)
	codec.String(c, &t.name)
	codec.Bool(c, &t.replace)
	codec.String(c, &t.by)
	codec.Uint(c, &t.uses)
	codec.List(c, &t.used, func(c *codec.Coder, u *use) {
		codec.String(c, &u.by)
		codec.Int(c, &u.issued)
	})
}

// HasToken reports whether a join token is kept, used or not. O(log n).
func (x *Hosts) HasToken(hash cluster.Digest) bool { return x.tokens.Has(hash) }

// maxTokens bounds the tokens that have not expired.
const maxTokens = 100_000

// MaxUses bounds the hosts that may join with one token.
const MaxUses = 1000

// CreateToken makes a join token. registered reports whether a node is registered.
func (x *Hosts) CreateToken(now cluster.Instant, c *command.CreateToken, registered func(node string) bool) (refusal *command.Refusal, keep bool) {
	if refusal := checkToken(c); refusal != nil {
		return refusal, false
	}
	x.DropTokens(now)
	switch {
	case !c.Actor.Has(command.RoleAdmin):
		return denied(c.Actor, "make join tokens"), true
	case c.Expires <= now:
		return command.Refuse(command.InvalidArgument, "the join token would already have expired", "check the clocks of the controllers"), true
	case x.tokens.Len() >= maxTokens:
		return command.Refusef(command.Exhausted, "the limit of %d join tokens is reached", maxTokens), true
	case x.tokens.Has(c.Hash):
		return command.Refuse(command.Conflict, "this join token already exists", "make another one"), true
	}
	if use := x.nameInUse(now, c.Kind.String(), c.Name, registered); use != "" && !c.Replace {
		return inUse(c.Kind.String(), c.Name, use), true
	}
	x.tokens.Set(c.Hash, token{kind: c.Kind, expires: c.Expires, name: c.Name, replace: c.Replace, by: c.Actor.Identity.User, uses: c.Uses})
	return nil, true
}

// checkToken refuses an invalid command.
func checkToken(c *command.CreateToken) *command.Refusal {
	switch {
	case c.Kind < command.NodeToken || c.Kind > command.AuthToken:
		return command.Refusef(command.InvalidArgument, "unknown kind of join token %d", c.Kind)
	case c.Hash.IsZero():
		return command.Refuse(command.InvalidArgument, "a join token needs a hash", "")
	case c.Replace && c.Name == "":
		return command.Refuse(command.InvalidArgument, "a token with --replace needs the name of the host", "add --name NAME")
	case c.Uses < 1 || c.Uses > MaxUses:
		return command.Refusef(command.InvalidArgument, "a join token has 1 to %d uses, not %d", MaxUses, c.Uses)
	case c.Uses > 1 && (c.Name != "" || c.Kind == command.ControllerToken):
		return command.Refuse(command.InvalidArgument, "a token for a controller or for a host with a name has one use", "omit --uses")
	case len(c.Name) > maxName:
		return command.Refusef(command.InvalidArgument, "a name has at most %d bytes", maxName)
	case reservedName(c.Name):
		return reserved(c.Name)
	case cluster.IsLeased(c.Name):
		return leasedName(c.Name)
	}
	return nil
}

// leasedName refuses the name of a leased node for another host.
func leasedName(name string) *command.Refusal {
	return command.WithHint(command.Refusef(command.InvalidArgument, "%q is the name of a leased node", command.Sanitize(name)), "choose a name that does not begin with %s", cluster.LeasedPrefix)
}

func reserved(name string) *command.Refusal {
	return command.WithHint(command.Refusef(command.InvalidArgument, "%q is a reserved word and cannot name a host", command.Sanitize(name)), "choose another name: gctl join --name NAME")
}

// inUse refuses a name in use.
func inUse(role, name, use string) *command.Refusal {
	return command.WithHint(command.Refusef(command.Conflict, "the name %s is in use by a %s: %s", command.Sanitize(name), roleText(role), use),
		"to join the same host again, or replace it, create its token with gctl cluster token --%s --name %s --replace; another host needs another name: gctl join --name", role, command.Sanitize(name))
}

// roleText returns a role in words.
func roleText(role string) string {
	if role == command.AuthToken.String() {
		return "login node"
	}
	return role
}

// UseToken records that a host joins. registered reports whether a node is registered.
func (x *Hosts) UseToken(now cluster.Instant, c *command.UseToken, registered func(node string) bool) *command.Refusal {
	t, known := x.tokens.Get(c.Hash)
	const again = "make a new one with gctl cluster token"
	switch {
	case !known || t.expires <= now:
		return command.Refuse(command.NotFound, "the join token is unknown or has expired", again)
	case t.kind != c.Kind:
		return command.Refuse(command.InvalidArgument, "the join token is for another role", again)
	}
	return x.use(now, c.Hash, t, c, registered)
}

// UseLaunchToken records that the node of a lease joins with the token of its launch, which is good for each lease once.
// The lease has the instance that the command names.
func (x *Hosts) UseLaunchToken(now cluster.Instant, l *cluster.Lease, c *command.UseToken) *command.Refusal {
	if name := l.ID.NodeName(); c.Certificate != (command.Certificate{}) && c.Certificate.Name != name {
		return command.Refusef(command.Denied, "instance %s is node %s, not %s", l.Instance, name, command.Sanitize(c.Certificate.Name))
	}
	key := cluster.Digest(sha256.Sum256(fmt.Appendf(c.Hash[:], "/%d", l.ID)))
	t, known := x.tokens.Get(key)
	if !known {
		t = token{kind: command.NodeToken, expires: l.Expires, name: l.ID.NodeName(), replace: true, by: "burst", uses: 1}
	}
	refusal := x.use(now, key, t, c, func(string) bool { return false })
	if refusal != nil {
		refusal.Hint = "end the instance"
	}
	return refusal
}

// use records that a host joins with a token of the right kind, which is stored under a key.
func (x *Hosts) use(now cluster.Instant, key cluster.Digest, t token, c *command.UseToken, registered func(node string) bool) *command.Refusal {
	const again = "make a new one with gctl cluster token"
	earlier := slices.IndexFunc(t.used, func(u use) bool { return u.by == c.Name })
	switch {
	case earlier >= 0 && t.uses == 1: // with more uses the holder of the token may be another host
		return x.repeatJoin(now, t.used[earlier], &c.Certificate)
	case len(t.used) == int(t.uses) && t.uses == 1:
		return command.Refuse(command.Conflict, "the join token was used by "+t.used[0].by, again)
	case len(t.used) >= int(t.uses):
		return command.WithHint(command.Refusef(command.Conflict, "the join token was used by %d hosts, as many as it is for", t.uses), again)
	case c.Name == "" || len(c.Name) > maxName:
		return command.Refuse(command.InvalidArgument, "the name of the host is empty or too long", "")
	}
	if refusal := x.join(now, t, &c.Certificate, registered); refusal != nil {
		return refusal
	}
	t.used = append(slices.Clip(t.used), use{c.Name, c.Certificate.Issued})
	x.tokens.Set(key, t)
	return nil
}

// join records the certificate of a host that joins, if it may have the name.
func (x *Hosts) join(now cluster.Instant, t token, c *command.Certificate, registered func(node string) bool) *command.Refusal {
	if *c == (command.Certificate{}) {
		return nil
	}
	if c.Role != t.kind.String() {
		return command.Refusef(command.InvalidArgument, "the join token is for another role")
	}
	if refusal := checkCertificate(now, c); refusal != nil {
		return refusal
	}
	use := x.nameInUse(now, c.Role, c.Name, registered)
	switch {
	case reservedName(c.Name):
		return reserved(c.Name)
	case cluster.IsLeased(c.Name) && t.name != c.Name:
		return leasedName(c.Name)
	case t.name != "" && t.name != c.Name:
		return command.WithHint(command.Refusef(command.Denied, "the join token is for %s %s, not %s", c.Role, t.name, c.Name), "gctl join --name %s, or make a token for this host", t.name)
	case use != "" && !t.replace:
		return inUse(c.Role, c.Name, use)
	}
	if use == "" {
		return x.addCertificate(c)
	}
	h := CertificateHolder{Role: c.Role, Name: c.Name}
	if old, known := x.holders.Get(holderKey{c.Role, c.Name}); known {
		h = *old
	}
	if c.Issued > h.Newest() { // else addCertificate refuses
		h.RevokedThrough, h.RevokedAt, h.RevokedBy, h.Reason = c.Issued-1, now, t.by, "replaced by a host that joined"
		x.putHolder(&h)
	}
	return x.addCertificate(c)
}

// repeatJoin answers a host that used the token before: its first answer was lost.
func (x *Hosts) repeatJoin(now cluster.Instant, t use, c *command.Certificate) *command.Refusal {
	if *c == (command.Certificate{}) {
		return nil
	}
	h, known := x.holders.Get(holderKey{c.Role, c.Name})
	if known && h.Revoked(t.issued) {
		return revokedRefusal(h)
	}
	if refusal := checkCertificate(now, c); refusal != nil {
		return refusal
	}
	return x.addCertificate(c)
}

// DropTokens drops expired tokens. O(tokens); there are few.
func (x *Hosts) DropTokens(now cluster.Instant) {
	all := x.tokens.Map.Clone()
	for hash, t := range all.All() {
		if t.expires <= now {
			x.tokens.Delete(hash)
		}
	}
}
