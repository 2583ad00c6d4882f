package state

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// ofCertificates runs the verbs about certificates.
func (x *script) ofCertificates(verb string, w scriptLine) string {
	switch verb {
	case "revoke":
		role, name, _ := strings.Cut(w.plain[1], "/")
		return x.apply(&command.RevokeCertificates{Request: request16(w), Actor: actor(w.plain[0]), Role: role, Name: name, Reason: w.keys["why"]})
	case "renew":
		c := x.certificate(w.plain[0], w)
		c.Origin = command.CertificateRenewed
		return x.apply(&command.RecordCertificate{Certificate: c, Prior: cluster.Instant(w.duration("prior"))})
	case "rotate":
		steps := map[string]command.RotationStep{"begin": command.BeginRotation, "cancel": command.CancelRotation, "finish": command.FinishRotation, "complete": command.CompleteRotation}
		return x.apply(&command.RotateCA{
			Request: request16(w), Actor: actor(w.plain[0]), Step: steps[w.plain[1]], Force: w.has("force"),
			Old: []byte(w.keys["old"]), New: []byte(w.keys["new"]),
		})
	case "rotation":
		v := x.s.View()
		r := v.Hosts().Rotation()
		return fmt.Sprintf("%s; nodes accept %s, controllers %s; not renewed: hosts %s, controllers %s",
			r.Phase, r.Authorities("node"), r.Authorities("controller"), v.Hosts().Unrenewed(v.Now(), false), v.Hosts().Unrenewed(v.Now(), true))
	}
	var b strings.Builder
	for h := range x.s.View().Hosts().CertificateHolders() {
		fmt.Fprintf(&b, "%s/%s", h.Role, h.Name)
		for _, c := range h.Certificates {
			word := map[bool]string{true: "revoked", false: "valid"}[h.Revoked(c.Issued)]
			fmt.Fprintf(&b, " %s:%s", c.Issued.Sub(0), word)
		}
		if h.RevokedAt != 0 {
			fmt.Fprintf(&b, " by %q at %s: %s", h.RevokedBy, h.RevokedAt.Sub(1), h.Reason)
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// certificate is one for ROLE/NAME, issued now unless issued= says when.
func (x *script) certificate(holder string, w scriptLine) command.Certificate {
	role, name, _ := strings.Cut(holder, "/")
	c := command.Certificate{Role: role, Name: name, Origin: command.CertificateJoined, Issued: x.s.View().Hosts().NextCertificate(role, name, x.now)}
	if at := w.duration("issued"); at > 0 {
		c.Issued = cluster.Instant(at)
	}
	c.Expires = c.Issued.Add(command.CertificateLife)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", holder, c.Issued))
	copy(c.Serial[:], sum[:])
	ca := sha256.Sum256([]byte(w.keys["ca"]))
	copy(c.CA[:], ca[:])
	return c
}
