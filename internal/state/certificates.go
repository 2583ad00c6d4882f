package state

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/cow"
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

// holderTable is who holds certificates.
type holderTable = cow.Map[holderKey, *CertificateHolder]

func newHolders() holderTable { return cow.New[holderKey, *CertificateHolder](compareHolders) }

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

// CertificateRevoked reports whether a peer's certificate of that issue time is revoked. O(log n).
func (v *View) CertificateRevoked(role, name string, issued cluster.Instant) bool {
	h, known := v.holders.Get(holderKey{role, name})
	return known && h.Revoked(issued)
}

// CertificateHolder returns what is recorded of a peer's certificates. O(log n).
func (v *View) CertificateHolder(role, name string) (*CertificateHolder, bool) {
	return v.holders.Get(holderKey{role, name})
}

// CertificateHolders yields all holders, by role and name.
func (v *View) CertificateHolders() iter.Seq[*CertificateHolder] {
	return func(yield func(*CertificateHolder) bool) {
		for _, h := range v.holders.All() {
			if !yield(h) {
				return
			}
		}
	}
}

// NextCertificate is the issue time of a peer's next certificate: now in whole seconds, or later
// where that is needed to be after every certificate and revocation so far.
func (v *View) NextCertificate(role, name string, now cluster.Instant) cluster.Instant {
	at := now.Time().Truncate(certificateTimeScale)
	if h, known := v.holders.Get(holderKey{role, name}); known {
		if last := h.Newest(); cluster.InstantOf(at) <= last {
			at = last.Time().Truncate(certificateTimeScale).Add(certificateTimeScale)
		}
	}
	return cluster.InstantOf(at)
}

// recordCertificate notes a renewal, or a certificate that was issued outside the log.
func (s *State) recordCertificate(c *command.RecordCertificate) command.Result {
	if refusal := s.checkCertificate(&c.Certificate); refusal != nil {
		return refusal
	}
	h, known := s.holders.Get(holderKey{c.Certificate.Role, c.Certificate.Name})
	if known && h.Revoked(c.Prior) {
		return revokedRefusal(h)
	}
	if known && slices.ContainsFunc(h.Certificates, func(x command.Certificate) bool { return x.Serial == c.Certificate.Serial }) {
		return &command.Done{Version: s.index}
	}
	if refusal := s.addCertificate(&c.Certificate); refusal != nil {
		return refusal
	}
	return &command.Done{Version: s.index}
}

// revokedRefusal refuses a peer whose certificate was revoked.
func revokedRefusal(h *CertificateHolder) *command.Refusal {
	return hinting(refusef(command.Denied, "the certificate of %s %s was revoked", h.Role, h.Name), "%s", JoinHint(h.Role))
}

// JoinHint is how a host of that role gets a new certificate.
func JoinHint(role string) string {
	return "make a token with gctl cluster token --" + role + " and run gctl join TOKEN@HOST on this host"
}

// checkCertificate refuses what no certificate is.
func (s *State) checkCertificate(c *command.Certificate) *command.Refusal {
	badName := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(",[]/", r) }
	switch {
	case !certificateRole(c.Role):
		return refusef(command.InvalidArgument, "%q is not node, controller or auth", sanitize(c.Role))
	case c.Name == "" || len(c.Name) > maxNodeName || strings.ContainsFunc(c.Name, badName):
		return refusef(command.InvalidArgument, "%q is no name for a host", sanitize(c.Name))
	case c.Issued <= 0 || c.Expires <= c.Issued || c.Expires.Sub(c.Issued) > command.CertificateLife || len(c.Token) > maxNodeName:
		return refusef(command.InvalidArgument, "the certificate of %s %s is not well formed", c.Role, c.Name)
	case c.Issued > s.now.Add(maxCertificateAhead):
		return hinting(refusef(command.Exhausted, "too many certificates were issued to %s %s", c.Role, c.Name), "retry in a minute")
	}
	return nil
}

func certificateRole(role string) bool {
	return role == "node" || role == "controller" || role == "auth"
}

// addCertificate records a certificate that is later than all of its holder.
func (s *State) addCertificate(c *command.Certificate) *command.Refusal {
	old, known := s.holders.Get(holderKey{c.Role, c.Name})
	switch {
	case !known && s.holders.Len() >= maxHolders:
		return refusef(command.Exhausted, "there are %d holders of certificates already", maxHolders)
	case known && c.Issued <= old.Newest() && (c.Origin != command.CertificateSeen || old.Revoked(c.Issued)):
		return hinting(refusef(command.Conflict, "another certificate of %s %s was issued or revoked at the same time", c.Role, c.Name), "run the command again")
	}
	h := CertificateHolder{Role: c.Role, Name: c.Name}
	if known {
		h = *old
	}
	list := append(slices.Clone(h.Certificates), *c)
	slices.SortStableFunc(list, func(a, b command.Certificate) int { return cmp.Compare(a.Issued, b.Issued) })
	h.Certificates = list[max(0, len(list)-maxCertificates):]
	s.putHolder(&h)
	return nil
}

// revokeCertificates revokes what was issued to a peer until now.
func (s *State) revokeCertificates(c *command.RevokeCertificates) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	switch {
	case !certificateRole(c.Role) || c.Name == "" || len(c.Name) > maxNodeName:
		return refusef(command.InvalidArgument, "%q is not node/NAME, controller/NAME or auth/NAME", sanitize(c.Role+"/"+c.Name))
	case !allowed(c.Actor, command.RoleAdmin):
		return refusef(command.Denied, "%s may not revoke certificates: requires role admin", c.Actor.Identity.User)
	case strings.TrimSpace(c.Reason) == "":
		return refuse(command.InvalidArgument, "a revocation needs a reason", "give one with --reason")
	case !s.revoke(c.Role, c.Name, c.Actor.Identity.User, c.Reason):
		return s.remember(c.Request, refusef(command.Exhausted, "there are %d holders of certificates already", maxHolders))
	}
	return s.remember(c.Request, &command.Done{Version: s.index})
}

// revoke revokes what was issued to a peer until now. It reports whether there is room for it.
func (s *State) revoke(role, name, by, reason string) bool {
	old, known := s.holders.Get(holderKey{role, name})
	if !known && s.holders.Len() >= maxHolders {
		return false
	}
	h := CertificateHolder{Role: role, Name: name}
	if known {
		h = *old
	}
	h.RevokedThrough = max(s.now, h.Newest())
	h.RevokedAt, h.RevokedBy, h.Reason = s.now, by, sanitize(reason)
	s.putHolder(&h)
	return true
}

// nameInUse says what a name is in use for; "" for a name that a host may join under.
func (s *State) nameInUse(role, name string) string {
	h, known := s.holders.Get(holderKey{role, name})
	if known {
		if c, valid := h.Valid(s.now); valid {
			return "its certificate is valid until " + c.Expires.Time().Format("2006-01-02 15:04") + " UTC"
		}
		return ""
	}
	if _, registered := s.nodes.Get(name); registered && role == "node" {
		return "it is a registered node"
	}
	return ""
}

// ReservedName reports whether a name means something else in a policy or a command.
func ReservedName(name string) bool {
	return slices.ContainsFunc([]string{"all", "any", "none", "localhost"}, func(word string) bool { return strings.EqualFold(word, name) })
}

func (s *State) putHolder(h *CertificateHolder) {
	key := holderKey{h.Role, h.Name}
	if old, known := s.holders.Get(key); known {
		s.digest ^= s.hashHolder(old)
	}
	s.holders.Set(key, h)
	s.digest ^= s.hashHolder(h)
}

func (s *State) hashHolder(h *CertificateHolder) uint64 {
	return hashRecord(s.hashes.of(hashHolders), h, holderFields)
}

// expireCertificates drops, once a day, what has expired. O(holders).
func (s *State) expireCertificates(before cluster.Instant) {
	if before.Time().Truncate(day).Equal(s.now.Time().Truncate(day)) {
		return
	}
	all := s.holders.Clone()
	for key, old := range all.All() {
		h := *old
		h.Certificates = slices.DeleteFunc(slices.Clone(old.Certificates), func(c command.Certificate) bool { return c.Expires <= s.now })
		kept := h.RevokedThrough > 0 && h.RevokedThrough.Add(command.CertificateLife+revocationMargin) > s.now
		switch {
		case len(h.Certificates) == 0 && !kept:
			s.digest ^= s.hashHolder(old)
			s.holders.Delete(key)
		case len(h.Certificates) < len(old.Certificates):
			s.putHolder(&h)
		}
	}
}

func (x *restoring) readHolder(c *codec.Coder) {
	h := new(CertificateHolder)
	codec.Record(c, h, holderFields)
	if !certificateRole(h.Role) || h.Name == "" || len(h.Certificates) > maxCertificates || !x.holders.Set(holderKey{h.Role, h.Name}, h) {
		c.Fail("the certificates of %s %q are not well formed", h.Role, h.Name)
	}
}

func (v *View) encodeHolders(f *frames) {
	f.of(frameHolders)
	for _, h := range v.holders.All() {
		record(f, &none{}, noKey, h, holderFields)
	}
}

// checkHolders checks what is recorded of certificates.
func (x *checking) checkHolders() {
	for key, h := range x.holders.All() {
		if key != (holderKey{h.Role, h.Name}) || len(h.Certificates) > maxCertificates || len(h.Certificates) == 0 && h.RevokedThrough == 0 {
			x.fault("%s %q holds %d certificates, revoked through %d", h.Role, h.Name, len(h.Certificates), h.RevokedThrough)
		}
		if !slices.IsSortedFunc(h.Certificates, func(a, b command.Certificate) int { return cmp.Compare(a.Issued, b.Issued) }) {
			x.fault("the certificates of %s %q are not in order", h.Role, h.Name)
		}
		for i := range h.Certificates {
			if c := &h.Certificates[i]; c.Role != h.Role || c.Name != h.Name || c.Expires <= c.Issued {
				x.fault("%s %q holds a certificate of %s %q", h.Role, h.Name, c.Role, c.Name)
			}
		}
	}
}
