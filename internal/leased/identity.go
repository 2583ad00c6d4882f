package leased

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// documentPath and signaturePath are where EC2 shows the identity of an instance.
const documentPath, signaturePath = "/latest/dynamic/instance-identity/document", "/latest/dynamic/instance-identity/signature"

// maxIdentity bounds an identity document, in bytes: the controllers take no longer one.
const maxIdentity = 16 << 10

// AWSIdentity is the identity document of an instance of EC2: the document of the metadata service, unchanged, and its
// signature in base64.
type AWSIdentity struct {
	Document  string `json:"document"`
	Signature string `json:"signature"`
}

// Identity returns the identity document of this host from a source: aws, file:PATH, or "" for none. metadata is the URL of the
// metadata service.
func Identity(ctx context.Context, source, metadata string) (string, error) {
	var text []byte
	var err error
	switch kind, path, _ := strings.Cut(source, ":"); {
	case source == "":
		return "", nil
	case source == "aws":
		text, err = newIMDS(metadata).identity(ctx)
	case kind == "file" && path != "":
		text, err = os.ReadFile(path)
	default:
		return "", fmt.Errorf("--identity: %q is not aws or file:PATH", source)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("the identity document cannot be read: %w", err)
	case len(text) == 0 || len(text) > maxIdentity:
		return "", fmt.Errorf("the identity document has %d bytes, not 1 to %d", len(text), maxIdentity)
	}
	return string(text), nil
}

var errNoIdentity = errors.New("the metadata service has no identity document with a signature")

// identity returns the document of EC2, as JSON of [AWSIdentity].
func (m *imds) identity(ctx context.Context) ([]byte, error) {
	document, err := m.get(ctx, documentPath)
	if err != nil {
		return nil, err
	}
	signature, err := m.get(ctx, signaturePath)
	if err != nil {
		return nil, err
	}
	if len(document) == 0 || len(signature) == 0 {
		return nil, errNoIdentity
	}
	return json.Marshal(AWSIdentity{Document: string(document), Signature: string(signature)})
}
