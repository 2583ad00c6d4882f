package burst

import (
	"context"
	"errors"
)

// MaxDocument bounds an identity document, in bytes.
const MaxDocument = 16 << 10

// IdentityQuestion asks whether a host is an instance of the cluster.
type IdentityQuestion struct {
	Instance string `json:"instance"` // what the host says that it is
	// Document is what "gctl join --identity" read on the host: proof by the cloud, in a form that only the program knows.
	Document string `json:"document"`
}

// ErrNotProved is wrapped by [Program.Identify] if the document does not prove what the host says.
var ErrNotProved = errors.New("the identity document does not prove that this host is the instance")

// Identify asks whether a document proves that a host is an instance of the cluster. The error wraps [ErrNotProved] if it
// does not, and else that of the other calls: then the host may ask again.
func (p *Program) Identify(ctx context.Context, instance, document string) error {
	_, err := p.call(ctx, CallIdentify, &Question{Identity: &IdentityQuestion{Instance: instance, Document: document}}, p.cfg.Log)
	if errors.Is(err, ErrRefused) {
		return errors.Join(ErrNotProved, err)
	}
	return err
}
