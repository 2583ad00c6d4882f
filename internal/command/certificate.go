package command

import (
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// CertificateLife is the longest validity of a certificate. The state keeps a revocation until
// every certificate that it covers has expired.
const CertificateLife = 30 * 24 * time.Hour

// CertificateOrigin is how a certificate came to be recorded.
type CertificateOrigin uint8

// The origins.
const (
	CertificateJoined  CertificateOrigin = iota + 1 // by a join token
	CertificateRenewed                              // exchanged for an older one
	CertificateSeen                                 // issued outside the log, such as by gctl init
)

// String is the word that the API uses.
func (o CertificateOrigin) String() string {
	switch o {
	case CertificateJoined:
		return "joined"
	case CertificateRenewed:
		return "renewed"
	case CertificateSeen:
		return "seen"
	}
	return "unknown"
}

// Certificate is one certificate that the cluster's CA issued.
type Certificate struct {
	Role    string // of package pki: node, controller, auth
	Name    string
	Serial  [16]byte
	Issued  cluster.Instant // whole seconds; certificates are revoked by it
	Expires cluster.Instant
	CA      [8]byte // first bytes of the issuing CA's fingerprint
	Origin  CertificateOrigin
	Token   string // public ID of the join token; "" for other origins
}

// RecordCertificate notes a certificate that was issued without a join token. It is refused when
// the certificate that asked for it, issued at Prior, is revoked.
type RecordCertificate struct {
	Certificate Certificate
	Prior       cluster.Instant
}

// RevokeCertificates revokes every certificate of a peer that was issued until now.
type RevokeCertificates struct {
	Request RequestID
	Actor   Actor
	Role    string
	Name    string
	Reason  string
}

func (*RecordCertificate) kind() kind  { return kindRecordCertificate }
func (*RevokeCertificates) kind() kind { return kindRevokeCertificates }

// CertificateFields are those of a certificate.
func CertificateFields(c *codec.Coder, x *Certificate) {
	codec.String(c, &x.Role)
	codec.String(c, &x.Name)
	codec.Fixed(c, x.Serial[:])
	codec.Int(c, &x.Issued)
	codec.Int(c, &x.Expires)
	codec.Fixed(c, x.CA[:])
	codec.Uint(c, &x.Origin)
	codec.String(c, &x.Token)
}

func recordCertificateFields(c *codec.Coder, x *RecordCertificate) {
	codec.Record(c, &x.Certificate, CertificateFields)
	codec.Int(c, &x.Prior)
}

func revokeCertificatesFields(c *codec.Coder, x *RevokeCertificates) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.String(c, &x.Role)
	codec.String(c, &x.Name)
	codec.String(c, &x.Reason)
}
