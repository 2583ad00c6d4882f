package pki

import (
	"bytes"
	"errors"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

func TestASealedSecretOpensForItsOwnerAndNameOnly(t *testing.T) {
	ca := testCA(t, "prod")
	value, first := []byte("hf_0123456789abcdef"), ca.Trust().DERs()[0]
	s := command.Secret{Owner: cluster.Identity{User: "ann", UID: 1001}, Name: "token"}
	if err := ca.Seal(first, &s, value); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(s.Sealed, value[:4]) {
		t.Error("the ciphertext contains the value")
	}
	again := s
	if err := ca.Seal(first, &again, value); err != nil || bytes.Equal(again.Sealed, s.Sealed) {
		t.Errorf("sealed twice alike: %v", err)
	}
	if got, err := ca.Unseal(&s); err != nil || !bytes.Equal(got, value) {
		t.Errorf("opened: %q, %v", got, err)
	}
	for what, change := range map[string]func(*command.Secret){
		"of another user": func(s *command.Secret) { s.Owner.User = "bob" }, "of another UID": func(s *command.Secret) { s.Owner.UID++ },
		"of another name": func(s *command.Secret) { s.Name = "other" }, "cut": func(s *command.Secret) { s.Sealed = s.Sealed[:20] },
	} {
		other := s
		change(&other)
		if _, err := ca.Unseal(&other); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := testCA(t, "prod").Unseal(&s); !errors.Is(err, ErrUnreadable) {
		t.Errorf("with another CA: %v", err)
	}
}

func TestSecretsOfBothCAsOpenDuringARotation(t *testing.T) {
	ca, old, next := rotating(t)
	s := command.Secret{Owner: cluster.Identity{User: "ann"}, Name: "token"}
	if err := ca.Seal(old, &s, []byte("x")); err != nil {
		t.Fatal(err)
	}
	ca.Trust().replace(t, next, old)
	value, err := ca.Unseal(&s)
	if err != nil {
		t.Fatal(err)
	}
	moved := s
	if err := ca.Seal(next, &moved, value); err != nil || moved.Authority == s.Authority {
		t.Fatalf("under the next CA: %v", err)
	}
	ca.Trust().replace(t, next)
	if _, err := ca.Unseal(&s); !errors.Is(err, ErrUnreadable) {
		t.Errorf("under the old CA, which is no longer accepted: %v", err)
	}
	if value, err := ca.Unseal(&moved); err != nil || string(value) != "x" {
		t.Errorf("after the rotation: %q, %v", value, err)
	}
}
