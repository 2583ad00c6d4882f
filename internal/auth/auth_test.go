package auth

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

var alice = cluster.Identity{User: "alice", UID: 1001, GID: 100}

func testCA(t testing.TB) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA("prod", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func testIdentity(t testing.TB, ca *pki.CA, role pki.Role, name string) *pki.Identity {
	t.Helper()
	dir := t.TempDir()
	peer := pki.Peer{ClusterID: ca.Trust().ClusterID(), Role: role, Name: name}
	if err := ca.Issue(dir, pki.Grant{Peer: peer}, time.Now()); err != nil {
		t.Fatal(err)
	}
	id, _, err := pki.OpenIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func testSigner(t testing.TB, ca *pki.CA, host string) *Signer {
	t.Helper()
	s, err := NewSigner(testIdentity(t, ca, pki.RoleAuth, host))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testToken(t testing.TB, s *Signer, now time.Time) string {
	t.Helper()
	token, err := s.Token(alice, now)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokenSaysWho(t *testing.T) {
	ca := testCA(t)
	now := time.Now().Truncate(time.Millisecond)
	v := NewVerifier(ca.Trust(), nil)
	token := testToken(t, testSigner(t, ca, "login1"), now)
	for range 2 { // the second is answered from memory
		id, err := v.Verify(token, now)
		if err != nil {
			t.Fatal(err)
		}
		want := Identity{Identity: alice, Host: "login1", Issued: now.UTC(), Expires: now.Add(TokenLife).UTC(), Signer: id.Signer}
		if id != want || id.Signer == nil {
			t.Errorf("%+v, want %+v", id, want)
		}
	}
	if len(v.tokens.entries) != 1 || len(v.signers.entries) != 1 {
		t.Errorf("%d tokens and %d signers remembered", len(v.tokens.entries), len(v.signers.entries))
	}
	t.Logf("a token has %d characters", len(token))
}

func TestTimes(t *testing.T) {
	ca := testCA(t)
	signer := testSigner(t, ca, "login1")
	issued := time.Now() // not before the certificate, which is valid from an hour earlier
	token := testToken(t, signer, issued)
	warm := NewVerifier(ca.Trust(), nil)
	if _, err := warm.Verify(token, issued); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]error{
		-time.Hour:                     ErrClock,
		-Skew - time.Second:            ErrClock,
		-Skew + time.Second:            nil,
		0:                              nil,
		TokenLife + Skew - time.Second: nil,
		TokenLife + Skew + time.Second: ErrExpired,
		24 * time.Hour:                 ErrExpired,
	} {
		for name, v := range map[string]*Verifier{"cold": NewVerifier(ca.Trust(), nil), "warm": warm} {
			_, err := v.Verify(token, issued.Add(after))
			if !errors.Is(err, want) {
				t.Errorf("%s, %v after: %v, want %v", name, after, err, want)
			}
			if want != nil && !strings.Contains(hint.Of(err), "clock") && name == "warm" {
				t.Errorf("%v after: no hint in %v", after, err)
			}
		}
	}
}

func TestOnlyOurGauthdsVouch(t *testing.T) {
	ours, theirs := testCA(t), testCA(t)
	now := time.Now()
	v := NewVerifier(ours.Trust(), nil)
	if _, err := v.Verify(testToken(t, testSigner(t, theirs, "login1"), now), now); !errors.Is(err, ErrBadToken) || !errors.Is(err, pki.ErrUntrusted) {
		t.Errorf("gauthd of another cluster: %v", err)
	}
	if _, err := NewSigner(testIdentity(t, ours, pki.RoleNode, "n1")); !errors.Is(err, pki.ErrWrongRole) {
		t.Errorf("a node as signer: %v", err)
	}
	// A node's certificate before a token that gauthd signed.
	token, _ := base64.RawURLEncoding.DecodeString(testToken(t, testSigner(t, ours, "login1"), now))
	c, _, signature, err := decode(base64.RawURLEncoding.EncodeToString(token))
	if err != nil {
		t.Fatal(err)
	}
	c.cert = testIdentity(t, ours, pki.RoleNode, "n1").Certificate().Certificate[0]
	forged := base64.RawURLEncoding.EncodeToString(append(c.append(nil), signature...))
	if _, err := v.Verify(forged, now); !errors.Is(err, pki.ErrWrongRole) {
		t.Errorf("a node's certificate: %v", err)
	}
	// Another gauthd's certificate: the signature covers it.
	c.cert = testIdentity(t, ours, pki.RoleAuth, "login2").Certificate().Certificate[0]
	forged = base64.RawURLEncoding.EncodeToString(append(c.append(nil), signature...))
	if _, err := v.Verify(forged, now); !errors.Is(err, ErrBadToken) {
		t.Errorf("another gauthd's certificate: %v", err)
	}
	if len(v.tokens.entries) != 0 {
		t.Error("a refused token is remembered")
	}
}

func TestSignerRefusesLongLife(t *testing.T) {
	ca := testCA(t)
	s := testSigner(t, ca, "login1")
	for _, name := range []string{"", "a:b", "a\nb", "a\x1bb", strings.Repeat("a", 256), "\xff"} {
		if _, err := s.Token(cluster.Identity{User: name, UID: 1}, time.Now()); err == nil {
			t.Errorf("user %q was signed", name)
		}
	}
	if _, err := s.Token(alice, time.Now().Add(31*24*time.Hour)); !errors.Is(err, pki.ErrNoIdentity) {
		t.Errorf("after the certificate ended: %v", err)
	}
}

func TestEveryChangedBitIsRefused(t *testing.T) {
	ca := testCA(t)
	now := time.Now()
	token, _ := base64.RawURLEncoding.DecodeString(testToken(t, testSigner(t, ca, "login1"), now))
	v := NewVerifier(ca.Trust(), nil)
	for i := range token {
		changed := bytes.Clone(token)
		changed[i] ^= 1 << (i % 8)
		if id, err := v.Verify(base64.RawURLEncoding.EncodeToString(changed), now); err == nil {
			t.Fatalf("byte %d of %d changed, accepted as %+v", i, len(token), id)
		}
	}
	for n := range token {
		if _, err := v.Verify(base64.RawURLEncoding.EncodeToString(token[:n]), now); !errors.Is(err, ErrBadToken) {
			t.Fatalf("cut to %d: %v", n, err)
		}
	}
	text := base64.RawURLEncoding.EncodeToString(token)
	for _, other := range []string{text + "A", text + "=", text + "\n", "\n" + text, text[:9] + "\r\n" + text[9:], strings.Repeat("A", maxToken+1)} {
		if _, err := v.Verify(other, now); !errors.Is(err, ErrBadToken) {
			t.Errorf("another spelling was accepted: %v", err)
		}
	}
}

func TestLRUIsBounded(t *testing.T) {
	l := newLRU[int](3)
	key := func(i int) digest { return digest{byte(i)} }
	for i := range 5 {
		l.add(key(i), i)
		if i >= 1 {
			l.find(key(1)) // kept alive
		}
	}
	l.add(key(1), 11)
	got := ""
	for i := range 5 {
		if v, ok := l.find(key(i)); ok {
			got += fmt.Sprint(v, " ")
		}
	}
	if got != "11 3 4 " || len(l.entries) != 3 || l.order.Len() != 3 {
		t.Errorf("kept %s", got)
	}
}

// FuzzVerify checks that no text crashes the verifier, that what decodes encodes to the same text,
// and that only what was signed is accepted.
func FuzzVerify(f *testing.F) {
	ca := testCA(f)
	now := time.Now()
	s := testSigner(f, ca, "login1")
	token := testToken(f, s, now)
	f.Add(token)
	f.Add("")
	f.Add(token[:len(token)-2] + "AA")
	f.Add(base64.RawURLEncoding.EncodeToString([]byte{1, 0, 0}))
	f.Fuzz(func(t *testing.T, text string) {
		if c, _, signature, err := decode(text); err == nil {
			if again := base64.RawURLEncoding.EncodeToString(append(c.append(nil), signature...)); again != text {
				t.Errorf("%q decodes, but encodes to %q", text, again)
			}
		}
		if id, err := NewVerifier(ca.Trust(), nil).Verify(text, now); err == nil && text != token {
			t.Errorf("%q was accepted as %+v", text, id)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	s := testSigner(b, testCA(b), "login1")
	now := time.Now()
	for b.Loop() {
		if _, err := s.Token(alice, now); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVerify measures the first token of a login node (stranger), a new one (new) and a
// repeated one (again).
func BenchmarkVerify(b *testing.B) {
	ca := testCA(b)
	s := testSigner(b, ca, "login1")
	now := time.Now()
	token := testToken(b, s, now)
	v := NewVerifier(ca.Trust(), nil)
	for name, verify := range map[string]func() (Identity, error){
		"stranger": func() (Identity, error) { return NewVerifier(ca.Trust(), nil).Verify(token, now) },
		"new":      func() (Identity, error) { return v.verify(token, now) },
		"again":    func() (Identity, error) { return v.Verify(token, now) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := verify(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestTokensOfAReplacedCAAreRefused includes tokens that the verifier remembers.
func TestTokensOfAReplacedCAAreRefused(t *testing.T) {
	ca, next, now := testCA(t), testCA(t), time.Now()
	v := NewVerifier(ca.Trust(), nil)
	signer := testSigner(t, ca, "login1")
	token := testToken(t, signer, now)
	if _, err := v.Verify(token, now); err != nil {
		t.Fatal(err)
	}
	both := append(next.Trust().DERs(), ca.Trust().DERs()...)
	if _, err := ca.Trust().Replace(both); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(token, now); err != nil {
		t.Errorf("during a rotation: %v", err)
	}
	if _, err := ca.Trust().Replace(both[:1]); err != nil {
		t.Fatal(err)
	}
	for what, token := range map[string]string{"remembered": token, "new": testToken(t, signer, now.Add(time.Second))} {
		if _, err := v.Verify(token, now); !errors.Is(err, ErrBadToken) {
			t.Errorf("a %s token after the rotation: %v", what, err)
		}
	}
}
