package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"strings"
	"time"
)

// ErrBadToken marks text that is no join token, or a token that does not match.
var ErrBadToken = errors.New("not a valid join token")

// tokenPrefix makes a token that leaked into a repository or a log easy to find.
const tokenPrefix = "glj_"

// tokenVersion is the first byte; the rest is role, id, secret, expiry, CA fingerprint, CRC-32.
const (
	tokenVersion = 1
	tokenBody    = 1 + 1 + 8 + 16 + 8 + sha256.Size
	tokenSize    = tokenBody + crc32.Size
)

// JoinToken lets one host join once, in one role, before it expires. It carries the CA's
// fingerprint, with which the host authenticates the cluster. It is a secret: the replicated state
// keeps only its Hash.
type JoinToken struct {
	Role    Role
	Expires time.Time // whole seconds, UTC
	CA      Fingerprint
	id      [8]byte
	secret  [16]byte
}

// TokenHash is the stored form of a join token. It covers id, secret, role and expiry, so the
// holder can alter none of them. The secret has 128 random bits: no slow hash is needed.
type TokenHash [sha256.Size]byte

// MintToken creates a join token for a host of this role under the CA of t.
func MintToken(t *Trust, role Role, expires time.Time) (JoinToken, TokenHash, error) {
	if !role.Valid() {
		return JoinToken{}, TokenHash{}, fmt.Errorf("%w: role %q is not controller, node or auth", ErrBadToken, role)
	}
	token := JoinToken{Role: role, Expires: expires.UTC().Truncate(time.Second), CA: t.Fingerprint()}
	_, _ = rand.Read(token.id[:]) // never fails on Linux
	_, _ = rand.Read(token.secret[:])
	return token, token.Hash(), nil
}

// ID returns the token's name in lists and logs; it is not secret.
func (t JoinToken) ID() string { return hex.EncodeToString(t.id[:]) }

// Expired reports whether the token has ended at now.
func (t JoinToken) Expired(now time.Time) bool { return !now.Before(t.Expires) }

// Hash returns what the replicated state keeps.
func (t JoinToken) Hash() TokenHash {
	h := sha256.New()
	h.Write([]byte("greylag join token 1\x00"))
	h.Write(t.encode())
	return TokenHash(h.Sum(nil))
}

func (t JoinToken) encode() []byte {
	b := make([]byte, 0, tokenSize)
	b = append(b, tokenVersion, roleByte(t.Role))
	b = append(b, t.id[:]...)
	b = append(b, t.secret[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(t.Expires.Unix()))
	return append(b, t.CA[:]...)
}

// String returns the printable form: 98 characters; the last ones detect copying errors.
func (t JoinToken) String() string {
	b := t.encode()
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// ParseToken reads the form of String. The errors wrap ErrBadToken and never repeat the text, which
// may hold a secret.
func ParseToken(text string) (JoinToken, error) {
	body, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok || len(body) != base64.RawURLEncoding.EncodedLen(tokenSize) {
		return JoinToken{}, fmt.Errorf("%w: it begins with %s and has %d characters: copy the whole token", ErrBadToken, tokenPrefix, len(tokenPrefix)+base64.RawURLEncoding.EncodedLen(tokenSize))
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(body) // strict: the last character counts in full
	if err != nil || len(b) != tokenSize {
		return JoinToken{}, fmt.Errorf("%w: it was altered; copy it again", ErrBadToken)
	}
	if crc32.ChecksumIEEE(b[:tokenBody]) != binary.BigEndian.Uint32(b[tokenBody:]) {
		return JoinToken{}, fmt.Errorf("%w: it was altered; copy it again", ErrBadToken)
	}
	if b[0] != tokenVersion {
		return JoinToken{}, fmt.Errorf("%w: version %d is of a newer greylag", ErrBadToken, b[0])
	}
	role, ok := map[byte]Role{'c': RoleController, 'n': RoleNode, 'a': RoleAuth}[b[1]]
	if !ok {
		return JoinToken{}, fmt.Errorf("%w: unknown role", ErrBadToken)
	}
	r := bytes.NewReader(b[2:tokenBody])
	t := JoinToken{Role: role}
	var expires uint64
	for _, field := range []any{&t.id, &t.secret, &expires, &t.CA} {
		if err := binary.Read(r, binary.BigEndian, field); err != nil {
			return JoinToken{}, fmt.Errorf("%w: %w", ErrBadToken, err)
		}
	}
	t.Expires = time.Unix(int64(expires), 0).UTC()
	return t, nil
}

// ParseJoin reads TOKEN@HOST:PORT, the argument of gctl join. Without a port it uses defaultPort.
func ParseJoin(text, defaultPort string) (JoinToken, string, error) {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return JoinToken{}, "", fmt.Errorf("%w: no @HOST after it; gctl cluster token prints the whole argument", ErrBadToken)
	}
	token, err := ParseToken(text[:at])
	if err != nil {
		return JoinToken{}, "", err
	}
	addr := text[at+1:]
	host, port, err := net.SplitHostPort(addr)
	if err != nil { // no port
		host, port = strings.Trim(addr, "[]"), defaultPort
	}
	if host == "" || port == "" || strings.ContainsAny(host, "/ \t\r\n") {
		return JoinToken{}, "", fmt.Errorf("%w: %q is not HOST or HOST:PORT", ErrBadToken, addr)
	}
	return token, net.JoinHostPort(host, port), nil
}

func roleByte(r Role) byte {
	if r == "" {
		return 0
	}
	return r[0] // c, n, a
}
