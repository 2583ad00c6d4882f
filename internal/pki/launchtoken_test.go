package pki

import (
	"errors"
	"testing"
	"time"
)

func TestLaunchToken(t *testing.T) {
	ca, old, next := rotating(t)
	expires := time.Now().Add(time.Hour)
	token, hash, err := ca.LaunchToken(7, 1, expires)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := ParseToken(token.String()); err != nil || back != token || back.Role != RoleNode || back.Hash() != hash || !ca.Trust().Holds(back.CA) {
		t.Errorf("parsed: %+v, %v", back, err)
	}
	keys, err := ca.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	trust, err := newTrust(old)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewCAFrom(trust, keys) // of another controller
	if err != nil {
		t.Fatal(err)
	}
	if again, _, err := other.LaunchToken(7, 1, expires); err != nil || again != token {
		t.Errorf("another controller: %+v, %v, want %+v", again, err, token)
	}
	seen := map[[16]byte]string{token.secret: "launch 7, try 1"}
	differs := func(what string, token JoinToken, _ TokenHash, err error) {
		t.Helper()
		if err != nil || seen[token.secret] != "" {
			t.Errorf("%s: %v, same secret as %s", what, err, seen[token.secret])
		}
		seen[token.secret] = what
	}
	repeat, _, err := ca.LaunchToken(7, 2, expires)
	differs("launch 7, try 2", repeat, hash, err)
	launch, _, err := ca.LaunchToken(71, 1, expires)
	differs("launch 71, try 1", launch, hash, err)
	if _, later, err := ca.LaunchToken(7, 1, expires.Add(time.Minute)); err != nil || later == hash {
		t.Errorf("another expiry has the same hash: %v", err)
	}
	ca.Trust().replace(t, next, old)
	rotated, _, err := ca.LaunchToken(7, 1, expires)
	differs("after a rotation", rotated, hash, err)
	if rotated.CA != ca.Trust().Fingerprint() {
		t.Error("the token has the fingerprint of the old CA")
	}
}

func TestLaunchTokenNeedsTheKey(t *testing.T) {
	ca, _, next := rotating(t)
	if err := ca.DropKey(next); err != nil {
		t.Fatal(err)
	}
	ca.Trust().replace(t, next)
	if _, _, err := ca.LaunchToken(7, 1, time.Now()); !errors.Is(err, ErrNoKey) {
		t.Errorf("without the key: %v", err)
	}
}
