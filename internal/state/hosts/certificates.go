package hosts

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bounds of what is kept of certificates.
const (
	maxHolders           = 100_000        // peers with certificates or revocations
	maxCertificates      = 8              // of one peer; the oldest are dropped
	maxCertificateAhead  = time.Minute    // of an issue time before the log's clock
	revocationMargin     = 24 * time.Hour // clocks and backdated certificates
	certificateTimeScale = time.Second    // of an issue time
	day                  = 24 * time.Hour
)

// CertificateHolder is a peer that certificates were issued to. It is replaced, never changed.
type CertificateHolder struct {
	Role, Name   string
	Certificates []command.Certificate // those that have not expired, in the order of issue
	// RevokedThrough is the issue time up to which its certificates are revoked; 0 means that
	// none is.
	RevokedThrough cluster.Instant
	RevokedAt      cluster.Instant
	RevokedBy      string
	Reason         string
}

// Revoked reports whether the holder's certificate of that issue time is revoked.
func (h *CertificateHolder) Revoked(issued cluster.Instant) bool { return issued <= h.RevokedThrough }

// Valid returns the newest certificate that is neither revoked nor expired at now.
func (h *CertificateHolder) Valid(now cluster.Instant) (command.Certificate, bool) {
	if n := len(h.Certificates); n > 0 {
		c := h.Certificates[n-1]
		return c, !h.Revoked(c.Issued) && c.Expires > now
	}
	return command.Certificate{}, false
}

// Newest is the latest issue time, or revocation, known of the holder.
func (h *CertificateHolder) Newest() cluster.Instant {
	at := h.RevokedThrough
	for i := range h.Certificates {
		at = max(at, h.Certificates[i].Issued)
	}
	return at
}

// holderKey orders holders.
type holderKey struct{ role, name string }

func compareHolders(a, b holderKey) int {
	return cmp.Or(strings.Compare(a.role, b.role), strings.Compare(a.name, b.name))
}

func holderFields(c *codec.Coder, h *CertificateHolder) {
	codec.String(c, &h.Role)
	codec.String(c, &h.Name)
	codec.List(c, &h.Certificates, certificateRecord)
	codec.Int(c, &h.RevokedThrough)
	codec.Int(c, &h.RevokedAt)
	codec.String(c, &h.RevokedBy)
	codec.String(c, &h.Reason)
}

func certificateRecord(c *codec.Coder, x *command.Certificate) {
	codec.Record(c, x, command.CertificateFields)
}

// CertificateHolder returns what is recorded of a peer's certificates. O(log n).
func (x *Hosts) CertificateHolder(role, name string) (*CertificateHolder, bool) {
	return x.holders.Get(holderKey{role, name})
}

// CertificateHolders yields all holders, by role and name.
func (x *Hosts) CertificateHolders() iter.Seq[*CertificateHolder] { return x.holders.Values() }

// NextCertificate is the issue time of a peer's next certificate: now in whole seconds, or later
// where that is needed to be after every certificate and revocation so far.
func (x *Hosts) NextCertificate(role, name string, now cluster.Instant) cluster.Instant {
	at := now.Time().Truncate(certificateTimeScale)
	if h, known := x.holders.Get(holderKey{role, name}); known {
		if last := h.Newest(); cluster.InstantOf(at) <= last {
			at = last.Time().Truncate(certificateTimeScale).Add(certificateTimeScale)
		}
	}
	return cluster.InstantOf(at)
}

// RecordCertificate records a renewal, or a certificate that was issued outside the log.
func (x *Hosts) RecordCertificate(now cluster.Instant, c *command.RecordCertificate) *command.Refusal {
	if refusal := checkCertificate(now, &c.Certificate); refusal != nil {
		return refusal
	}
	h, known := x.holders.Get(holderKey{c.Certificate.Role, c.Certificate.Name})
	if known && h.Revoked(c.Prior) {
		return revokedRefusal(h)
	}
	if known && slices.ContainsFunc(h.Certificates, func(x command.Certificate) bool { return x.Serial == c.Certificate.Serial }) {
		return nil
	}
	return x.addCertificate(&c.Certificate)
}

// revokedRefusal refuses a peer whose certificate was revoked.
func revokedRefusal(h *CertificateHolder) *command.Refusal {
	return command.WithHint(command.Refusef(command.Denied, "the certificate of %s %s was revoked", h.Role, h.Name), "%s", JoinHint(h.Role))
}

// JoinHint is how a host of that role gets a new certificate.
func JoinHint(role string) string {
	return "make a token with gctl cluster token --" + role + " and run gctl join TOKEN@HOST on this host"
}

// checkCertificate refuses an invalid certificate.
func checkCertificate(now cluster.Instant, c *command.Certificate) *command.Refusal {
	badName := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(",[]/", r) }
	switch {
	case !certificateRole(c.Role):
		return command.Refusef(command.InvalidArgument, "%q is not node, controller or auth", command.Sanitize(c.Role))
	case c.Name == "" || len(c.Name) > maxName || strings.ContainsFunc(c.Name, badName):
		return command.Refusef(command.InvalidArgument, "%q is not a valid host name", command.Sanitize(c.Name))
	case c.Issued <= 0 || c.Expires <= c.Issued || c.Expires.Sub(c.Issued) > command.CertificateLife || len(c.Token) > maxName:
		return command.Refusef(command.InvalidArgument, "the certificate of %s %s is not well formed", c.Role, c.Name)
	case c.Issued > now.Add(maxCertificateAhead):
		return command.WithHint(command.Refusef(command.Exhausted, "too many certificates were issued to %s %s", c.Role, c.Name), "retry in a minute")
	}
	return nil
}

func certificateRole(role string) bool {
	return role == "node" || role == "controller" || role == "auth"
}

// addCertificate records a certificate that is later than all of its holder.
func (x *Hosts) addCertificate(c *command.Certificate) *command.Refusal {
	old, known := x.holders.Get(holderKey{c.Role, c.Name})
	switch {
	case !known && x.holders.Len() >= maxHolders:
		return command.Refusef(command.Exhausted, "the limit of %d certificate holders is reached", maxHolders)
	case known && c.Issued <= old.Newest() && (c.Origin != command.CertificateSeen || old.Revoked(c.Issued)):
		return command.WithHint(command.Refusef(command.Conflict, "the certificates of %s %s changed concurrently", c.Role, c.Name), "run the command again")
	}
	h := CertificateHolder{Role: c.Role, Name: c.Name}
	if known {
		h = *old
	}
	list := append(slices.Clone(h.Certificates), *c)
	slices.SortStableFunc(list, func(a, b command.Certificate) int { return cmp.Compare(a.Issued, b.Issued) })
	h.Certificates = list[max(0, len(list)-maxCertificates):]
	x.putHolder(&h)
	return nil
}

// RevokeCertificates revokes what was issued to a peer until now.
func (x *Hosts) RevokeCertificates(now cluster.Instant, c *command.RevokeCertificates) (refusal *command.Refusal, keep bool) {
	switch {
	case !certificateRole(c.Role) || c.Name == "" || len(c.Name) > maxName:
		return command.Refusef(command.InvalidArgument, "%q is not node/NAME, controller/NAME or auth/NAME", command.Sanitize(c.Role+"/"+c.Name)), false
	case !c.Actor.Has(command.RoleAdmin):
		return denied(c.Actor, "revoke certificates"), false
	case strings.TrimSpace(c.Reason) == "":
		return command.Refuse(command.InvalidArgument, "a revocation needs a reason", "give one with --reason"), false
	case !x.Revoke(now, c.Role, c.Name, c.Actor.Identity.User, c.Reason):
		return command.Refusef(command.Exhausted, "the limit of %d certificate holders is reached", maxHolders), true
	}
	return nil, true
}

// Revoke revokes what was issued to a peer until now. It reports whether the table has room for
// the revocation.
func (x *Hosts) Revoke(now cluster.Instant, role, name, by, reason string) bool {
	old, known := x.holders.Get(holderKey{role, name})
	if !known && x.holders.Len() >= maxHolders {
		return false
	}
	h := CertificateHolder{Role: role, Name: name}
	if known {
		h = *old
	}
	h.RevokedThrough = max(now, h.Newest())
	h.RevokedAt, h.RevokedBy, h.Reason = now, by, command.Sanitize(reason)
	x.putHolder(&h)
	return true
}

// Revoked refuses a peer whose certificate of that issue time was revoked. O(log n).
func (x *Hosts) Revoked(role, name string, issued cluster.Instant) *command.Refusal {
	if h, known := x.holders.Get(holderKey{role, name}); known && h.Revoked(issued) {
		return revokedRefusal(h)
	}
	return nil
}

// nameInUse returns what a name is in use for; "" for a name that a host may join under.
func (x *Hosts) nameInUse(now cluster.Instant, role, name string, registered func(node string) bool) string {
	h, known := x.holders.Get(holderKey{role, name})
	if known {
		if c, valid := h.Valid(now); valid {
			return "its certificate is valid until " + c.Expires.Time().Format("2006-01-02 15:04") + " UTC"
		}
		return ""
	}
	if role == "node" && registered(name) {
		return "it is a registered node"
	}
	return ""
}

// reservedName reports whether a name means something else in a policy or a command.
func reservedName(name string) bool {
	return slices.ContainsFunc([]string{"all", "any", "none", "localhost"}, func(word string) bool { return strings.EqualFold(word, name) })
}

func (x *Hosts) putHolder(h *CertificateHolder) { x.holders.Set(holderKey{h.Role, h.Name}, h) }

// ExpireCertificates drops expired certificates once a day. before is the time of the last call.
// O(holders).
func (x *Hosts) ExpireCertificates(before, now cluster.Instant) {
	if before.Time().Truncate(day).Equal(now.Time().Truncate(day)) {
		return
	}
	all := x.holders.Map.Clone()
	for key, old := range all.All() {
		h := *old
		h.Certificates = slices.DeleteFunc(slices.Clone(old.Certificates), func(c command.Certificate) bool { return c.Expires <= now })
		kept := h.RevokedThrough > 0 && h.RevokedThrough.Add(command.CertificateLife+revocationMargin) > now
		switch {
		case len(h.Certificates) == 0 && !kept:
			x.holders.Delete(key)
		case len(h.Certificates) < len(old.Certificates):
			x.putHolder(&h)
		}
	}
}

func (x *Hosts) readHolder(c *codec.Coder) {
	_, h := x.holders.Decode(c)
	if !c.Failed() && (!certificateRole(h.Role) || h.Name == "" || len(h.Certificates) > maxCertificates) {
		c.Fail("the certificates of %s %q are not well formed", h.Role, h.Name)
	}
}

func (x *Hosts) checkHolders() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for key, h := range x.holders.All() {
		if key != (holderKey{h.Role, h.Name}) || len(h.Certificates) > maxCertificates || len(h.Certificates) == 0 && h.RevokedThrough == 0 {
			fault("%s %q holds %d certificates, revoked through %d", h.Role, h.Name, len(h.Certificates), h.RevokedThrough)
		}
		if !slices.IsSortedFunc(h.Certificates, func(a, b command.Certificate) int { return cmp.Compare(a.Issued, b.Issued) }) {
			fault("the certificates of %s %q are not in order", h.Role, h.Name)
		}
		for i := range h.Certificates {
			if c := &h.Certificates[i]; c.Role != h.Role || c.Name != h.Name || c.Expires <= c.Issued {
				fault("%s %q holds a certificate of %s %q", h.Role, h.Name, c.Role, c.Name)
			}
		}
	}
	return faults
}
