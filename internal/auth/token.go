package auth

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

// A token is base64url of:
//
//	version 1 | certificate length u16 | certificate DER | issued u64 (unix ms) | life u16 (s)
//	| uid u32 | gid u32 | nonce 8 | user length u8 | user | Ed25519 signature 64
//
// all big-endian. The signature covers signContext and all bytes before it, the certificate
// included, so cluster and host are bound to the token through it.
const (
	tokenVersion = 1
	signContext  = "greylag identity token 1\x00"
	nonceSize    = 8
	fixedSize    = 8 + 2 + 4 + 4 + nonceSize + 1
	maxCert      = 4 << 10
	maxToken     = (1 + 2 + maxCert + fixedSize + maxUser + ed25519.SignatureSize) * 4 / 3
)

// Signer makes tokens with the key of this host's gauthd. Safe for concurrent use.
type Signer struct{ id *pki.Identity }

// NewSigner takes the certificate of this host; its role must be auth.
func NewSigner(id *pki.Identity) (*Signer, error) {
	if p := id.Peer(); p.Role != pki.RoleAuth {
		return nil, fmt.Errorf("sign identity tokens: %w: %s, wanted auth; join this host with a token of kind auth", pki.ErrWrongRole, p)
	}
	return &Signer{id: id}, nil
}

// Host returns the name under which the signer identifies users.
func (s *Signer) Host() string { return s.id.Peer().Name }

// Token signs a token of user, valid from now for TokenLife. One Ed25519 signature, about 30 µs.
func (s *Signer) Token(user cluster.Identity, now time.Time) (string, error) {
	if err := checkUser(user.User); err != nil {
		return "", err
	}
	pair := s.id.Certificate() // key and certificate of one moment, even during a renewal
	key, ok := pair.PrivateKey.(ed25519.PrivateKey)
	if !ok {
		return "", fmt.Errorf("sign identity token: key is %T, expected Ed25519", pair.PrivateKey)
	}
	if now.After(pair.Leaf.NotAfter) {
		return "", fmt.Errorf("sign identity token: %w: it ended on %s", pki.ErrNoIdentity, pair.Leaf.NotAfter.UTC().Format(time.DateTime))
	}
	c := claims{cert: pair.Certificate[0], issued: now.UnixMilli(), life: TokenLife, user: user}
	_, _ = rand.Read(c.nonce[:]) // never fails on Linux
	signed := c.append([]byte(signContext))
	token := append(signed, ed25519.Sign(key, signed)...)
	return base64.RawURLEncoding.EncodeToString(token[len(signContext):]), nil
}

// claims is a token's content before verification.
type claims struct {
	cert   []byte
	issued int64 // unix ms
	life   time.Duration
	user   cluster.Identity
	nonce  [nonceSize]byte
}

func (c *claims) append(b []byte) []byte {
	b = append(b, tokenVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.cert)))
	b = append(b, c.cert...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.issued))
	b = binary.BigEndian.AppendUint16(b, uint16(c.life/time.Second))
	b = binary.BigEndian.AppendUint32(b, c.user.UID)
	b = binary.BigEndian.AppendUint32(b, c.user.GID)
	b = append(b, c.nonce[:]...)
	b = append(b, byte(len(c.user.User)))
	return append(b, c.user.User...)
}

// decode splits a token into its claims, the signed part, and the signature. It checks lengths and
// the user's name, and verifies nothing. Each token has one text: trailing bytes, padding and other
// spellings are refused.
func decode(text string) (c claims, signed, signature []byte, err error) {
	if len(text) > maxToken {
		return c, nil, nil, fmt.Errorf("%w: %d characters are too many", ErrBadToken, len(text))
	}
	b := make([]byte, len(signContext), len(signContext)+base64.RawURLEncoding.DecodedLen(len(text)))
	copy(b, signContext)
	for i := range len(text) { // the decoder would skip line ends
		if text[i] == '\n' || text[i] == '\r' {
			return c, nil, nil, fmt.Errorf("%w: it holds a line end", ErrBadToken)
		}
	}
	b, err = base64.RawURLEncoding.Strict().AppendDecode(b, []byte(text))
	if err != nil {
		return c, nil, nil, fmt.Errorf("%w: it is not base64url", ErrBadToken)
	}
	rest := b[len(signContext):]
	if len(rest) < 3 || rest[0] != tokenVersion {
		return c, nil, nil, fmt.Errorf("%w: it is too short, or of another version of greylag", ErrBadToken)
	}
	n := int(binary.BigEndian.Uint16(rest[1:]))
	if rest = rest[3:]; n > maxCert || len(rest) < n+fixedSize+ed25519.SignatureSize {
		return c, nil, nil, fmt.Errorf("%w: it is truncated", ErrBadToken)
	}
	c.cert, rest = rest[:n], rest[n:]
	c.issued = int64(binary.BigEndian.Uint64(rest))
	c.life = time.Duration(binary.BigEndian.Uint16(rest[8:])) * time.Second
	c.user.UID = binary.BigEndian.Uint32(rest[10:])
	c.user.GID = binary.BigEndian.Uint32(rest[14:])
	c.nonce = [nonceSize]byte(rest[18:])
	n = int(rest[fixedSize-1])
	if rest = rest[fixedSize:]; len(rest) != n+ed25519.SignatureSize {
		return c, nil, nil, fmt.Errorf("%w: its length is wrong", ErrBadToken)
	}
	c.user.User = string(rest[:n])
	if err := checkUser(c.user.User); err != nil {
		return c, nil, nil, err
	}
	signed = b[:len(b)-ed25519.SignatureSize]
	return c, signed, b[len(signed):], nil
}
