package provider

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/leased"
)

// authority signs identity documents as AWS does.
type authority struct{ *rsa.PrivateKey }

// newAuthority returns a key, and writes its certificate to a file.
func newAuthority(t *testing.T) (authority, string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	path := filepath.Join(t.TempDir(), "identity.pem")
	if err := errors.Join(err, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o644)); err != nil {
		t.Fatal(err)
	}
	return authority{key}, path
}

// prove returns an identity document.
func (a authority) prove(t *testing.T, d identityDocument) string {
	t.Helper()
	document, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(document)
	signature, err := rsa.SignPKCS1v15(rand.Reader, a.PrivateKey, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString(signature)
	proof, err := json.Marshal(leased.AWSIdentity{Document: string(document), Signature: text[:64] + "\n" + text[64:]})
	if err != nil {
		t.Fatal(err)
	}
	return string(proof)
}

func TestIdentify(t *testing.T) {
	c := newCloud(t)
	c.OwnerID = "123456789012"
	aws, path := newAuthority(t)
	other, _ := newAuthority(t)
	c.cfg.IdentityCertificates = path
	one := c.mustLaunch(1)[0]
	foreign := c.launchAs("c2", "greylag-c2-7-1", 7)
	address := c.mustList()[0].Address
	good := identityDocument{Account: "123456789012", Instance: one.ID, Region: c.cfg.Regions[0].Name, Address: address}
	if err := c.identify(t.Context(), &burst.IdentityQuestion{Instance: one.ID, Document: aws.prove(t, good)}); err != nil {
		t.Fatal(err)
	}
	change := func(f func(*identityDocument)) string {
		d := good
		f(&d)
		return aws.prove(t, d)
	}
	for _, bad := range []struct{ instance, document, want string }{
		{one.ID, "invented", "is not that of gctl join"},
		{one.ID, other.prove(t, good), "signed the document"},
		{one.ID, strings.Replace(aws.prove(t, good), "123456789012", "123456789013", 1), "signed the document"},
		{foreign.ID, aws.prove(t, good), "is that of instance"},
		{foreign.ID, change(func(d *identityDocument) { d.Instance = foreign.ID }), "has no instance"},
		{one.ID, change(func(d *identityDocument) { d.Account = "1" }), "of the account"},
		{one.ID, change(func(d *identityDocument) { d.Region = "mars-1" }), "not configured"},
		{one.ID, change(func(d *identityDocument) { d.Address = "10.9.9.9" }), "has the address"},
	} {
		err := c.identify(t.Context(), &burst.IdentityQuestion{Instance: bad.instance, Document: bad.document})
		var failed *Error
		if !errors.As(err, &failed) || failed.Kind != burst.FailureNotProved || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want %q", bad.document, err, bad.want)
		}
	}
	c.cfg.IdentityCertificates = ""
	var failed *Error
	if err := c.identify(t.Context(), &burst.IdentityQuestion{Instance: one.ID, Document: aws.prove(t, good)}); !errors.As(err, &failed) || failed.Kind != burst.FailureTryLater {
		t.Errorf("without certificates: %v", err)
	}
}
