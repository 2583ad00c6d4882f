package burst

import "context"

// MaxDocument bounds an identity document, in bytes.
const MaxDocument = 16 << 10

// IdentityQuestion asks whether a host is an instance of the cluster.
type IdentityQuestion struct {
	Instance string `json:"instance"` // what the host says that it is
	// Document is what "gctl join --identity" read on the host: proof by the cloud, in a form that only the program knows.
	Document string `json:"document"`
}

// Identify asks whether a document proves that a host is an instance of the cluster. The error wraps [ErrNotProved] if it
// does not; else the program could not check it.
func (p *Program) Identify(ctx context.Context, instance, document string) error {
	_, err := p.call(ctx, CallIdentify, &Question{Identity: &IdentityQuestion{Instance: instance, Document: document}}, p.cfg.Log)
	return err
}
