package state

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// secret runs the verbs about secrets: "set USER NAME", "delete USER OWNER NAME...", "reseal OWNER NAME", and
// "list". ca= is the certificate of the CA, and sealed= the length of the ciphertext.
func (x *script) secret(w scriptLine) string {
	next := command.Secret{Authority: sha256.Sum256([]byte(w.keys["ca"])), Sealed: bytes.Repeat([]byte{'x'}, int(w.number("sealed", 30)))}
	switch verb := w.plain[0]; verb {
	case "set":
		next.Name = w.plain[2]
		c := &command.SetSecret{Request: request16(w), Actor: actor(w.plain[1]), Secret: next}
		c.Actor.Identity.UID += uint32(w.number("uid", 0))
		return x.apply(c)
	case "delete":
		return x.apply(&command.DeleteSecrets{Request: request16(w), Actor: actor(w.plain[1]), User: w.plain[2], Names: w.plain[3:]})
	case "reseal":
		next.Owner.User, next.Name, next.Version = w.plain[1], w.plain[2], uint64(w.number("version", 0))
		if s, known := x.s.View().Secrets().Get(actor(w.plain[1]).Identity, w.plain[2]); known && next.Version == 0 {
			next.Version = s.Version
		}
		return x.apply(&command.ResealSecrets{Secrets: []command.Secret{next}})
	}
	var b strings.Builder
	for s := range x.s.View().Secrets().All() {
		fmt.Fprintf(&b, "%s/%s %d bytes, set %s, of the CA %x\n", s.Owner.User, s.Name, len(s.Sealed), s.Changed.Sub(1), s.Authority[:2])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// TestSnapshotHasSecrets checks that secrets are part of a snapshot and of the digest, and that two replicas
// that apply the same commands agree.
func TestSnapshotHasSecrets(t *testing.T) {
	x, replica := newScript(t), newScript(t)
	without := x.s.Digest()
	for _, line := range []string{"secret set ann token sealed=70", "secret set bob token", "secret set ann key sealed=500", "secret set ann key sealed=400", "secret delete bob bob token", "secret reseal ann token sealed=80 ca=next"} {
		if out := x.run(line); out != "" || replica.run(line) != "" {
			t.Fatalf("%s: %s", line, out)
		}
	}
	if x.s.Digest() == without || x.s.Digest() != replica.s.Digest() {
		t.Error("the digest does not cover secrets, or differs between replicas")
	}
	got, err := decode(bytes.NewReader(encode(t, x.s)), small)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
	again := &script{t: t, s: got}
	if before, after := x.run("secret list"), again.run("secret list"); before != after || got.Digest() != x.s.Digest() {
		t.Errorf("read from the snapshot:\n%s\nwritten:\n%s", after, before)
	}
	if s, known := got.View().Secrets().Get(cluster.Identity{User: "ann", UID: 1}, "token"); known {
		t.Errorf("a user with another UID has %v", s)
	}
}
