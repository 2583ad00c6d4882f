package pki

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTokenRoundTrip(t *testing.T) {
	trust := testCA(t, "prod").Trust()
	expires := time.Now().Add(time.Hour)
	for _, role := range []Role{RoleController, RoleNode, RoleAuth} {
		token, hash, err := MintToken(trust, role, expires)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseToken(token.String())
		if err != nil || back != token {
			t.Fatalf("parse %s: %+v, %v, want %+v", token, back, err, token)
		}
		if len(token.String()) != 98 {
			t.Errorf("%d characters", len(token.String()))
		}
		if back.Hash() != hash || back.CA != trust.Fingerprint() {
			t.Error("the hash of the token is another")
		}
		other, _, _ := MintToken(trust, role, expires)
		longer := back
		longer.Expires = longer.Expires.Add(time.Hour)
		elevated := back
		elevated.Role = map[Role]Role{RoleController: RoleNode, RoleNode: RoleController, RoleAuth: RoleController}[role]
		if other.Hash() == hash || longer.Hash() == hash || elevated.Hash() == hash {
			t.Error("another secret, expiry or role has the same hash")
		}
		if back.Expired(expires.Add(-time.Second)) || !back.Expired(expires.Add(time.Second)) {
			t.Error("expiry")
		}
	}
	if _, _, err := MintToken(trust, "admin", expires); !errors.Is(err, ErrBadToken) {
		t.Errorf("role admin: %v", err)
	}
}

func TestParseTokenRefusesEveryChangedCharacter(t *testing.T) {
	token, _, _ := MintToken(testCA(t, "prod").Trust(), RoleNode, time.Now())
	text := token.String()
	for i := range text {
		c := byte('A')
		if text[i] == c {
			c = 'B'
		}
		changed := text[:i] + string(c) + text[i+1:]
		if _, err := ParseToken(changed); !errors.Is(err, ErrBadToken) {
			t.Fatalf("changed at %d: %v", i, err)
		} else if strings.Contains(err.Error(), changed[8:]) {
			t.Fatalf("the error repeats the secret: %v", err)
		}
	}
	for _, s := range []string{"", "glj_", text[:97], text + "A", text + "\n", " " + text} {
		if _, err := ParseToken(s); !errors.Is(err, ErrBadToken) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestParseJoin(t *testing.T) {
	token, _, _ := MintToken(testCA(t, "prod").Trust(), RoleNode, time.Now())
	for in, want := range map[string]string{
		"ctl1":          "ctl1:7117",
		"ctl1:9":        "ctl1:9",
		"10.0.0.1":      "10.0.0.1:7117",
		"[fd00::1]:9":   "[fd00::1]:9",
		"[fd00::1]":     "[fd00::1]:7117",
		"ctl1.x.org:80": "ctl1.x.org:80",
	} {
		got, addr, err := ParseJoin(token.String()+"@"+in, "7117")
		if err != nil || addr != want || got != token {
			t.Errorf("%s: %s, %v, want %s", in, addr, err, want)
		}
	}
	for _, bad := range []string{token.String(), token.String() + "@", token.String() + "@:80", "x@ctl1", token.String() + "@a/b", token.String() + "@ctl1:"} {
		if _, _, err := ParseJoin(bad, "7117"); !errors.Is(err, ErrBadToken) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// FuzzParseToken checks that accepted text prints as it was read, and that nothing crashes.
func FuzzParseToken(f *testing.F) {
	ca, _ := NewCA("prod", time.Now())
	token, _, _ := MintToken(ca.Trust(), RoleAuth, time.Unix(1e9, 0))
	f.Add(token.String())
	f.Add(token.String() + "@host:1")
	f.Add("glj_")
	f.Fuzz(func(t *testing.T, text string) {
		if token, err := ParseToken(text); err == nil && token.String() != text {
			t.Errorf("%q read, %q written", text, token)
		}
		if _, addr, err := ParseJoin(text, "1"); err == nil && addr == "" {
			t.Errorf("%q has no address", text)
		}
	})
}
