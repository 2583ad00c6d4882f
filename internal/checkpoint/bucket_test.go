package checkpoint

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// newBucket starts an S3 server with a bucket, which this process uses.
func newBucket(t *testing.T) *s3mem.Backend {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("lab"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": server.URL, "AWS_ENDPOINT_URL_S3": "", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key",
	} {
		t.Setenv(name, value)
	}
	return backend
}

func put(t *testing.T, backend *s3mem.Backend, key string, content []byte) {
	t.Helper()
	if _, err := backend.PutObject("lab", key, map[string]string{"Last-Modified": time.Now().UTC().Format(http.TimeFormat)}, bytes.NewReader(content), int64(len(content)), nil); err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointInS3 commits a checkpoint in a bucket and verifies it: whole, by shares, and after changes.
func TestCheckpointInS3(t *testing.T) {
	backend := newBucket(t)
	const dir = "s3://lab/runs/12/a2-1"
	content := bytes.Repeat([]byte("weights "), large/8+1)[:large]
	put(t, backend, "runs/12/a2-1/model/shard-0", content)
	put(t, backend, "runs/12/a2-1/optimizer.pt", []byte("state"))
	put(t, backend, "runs/12/a2-1/empty", nil)
	put(t, backend, "runs/12/a2-10/other", []byte("of another checkpoint"))
	digest := commit(t, dir, true)
	if again := commit(t, dir, true); again != digest {
		t.Errorf("committed again with digest %x, first %x", again, digest)
	}
	m, err := Verify(t.Context(), dir, digest, All)
	if err != nil || m.Files != 3 || m.Bytes != large+5 {
		t.Errorf("%+v: %v, want 3 files", m, err)
	}
	check := func(what, want string, damaged bool) {
		t.Helper()
		_, err := Verify(t.Context(), dir, digest, All)
		if d := (*Damage)(nil); err == nil || !strings.Contains(err.Error(), want) || errors.As(err, &d) != damaged {
			t.Errorf("%s: %v, want %s, damage: %t", what, err, want, damaged)
		}
	}
	content[len(content)-1] ^= 1
	put(t, backend, "runs/12/a2-1/model/shard-0", content)
	check("a changed byte", "model/shard-0: 1 of 3 pieces differ", true)
	for index, want := range []bool{false, false, true} { // the changed piece is the third
		if _, err := Verify(t.Context(), dir, digest, Share{index, 3}); (err != nil) != want {
			t.Errorf("share %d: %v", index, err)
		}
	}
	put(t, backend, "runs/12/a2-1/model/shard-0", content[:9])
	check("a shorter object", "model/shard-0: 9 bytes, want", true)
	if _, err := backend.DeleteObject("lab", "runs/12/a2-1/model/shard-0"); err != nil {
		t.Fatal(err)
	}
	check("a missing object", "model/shard-0: does not exist", true)
	put(t, backend, "runs/12/a2-1/"+Name(digest), []byte("torn"))
	check("a torn manifest", "incomplete or altered", true)
	if _, err := Verify(t.Context(), "s3://lab/runs/13/a1-1", digest, All); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a prefix without objects: %v", err)
	}
	if _, err := Verify(t.Context(), "s3://other/runs/12/a2-1", digest, All); err == nil || errors.As(err, new(*Damage)) {
		t.Errorf("another bucket: %v, which says nothing about the checkpoint", err)
	}
}

// TestManifestInS3IsNeverReplaced writes a manifest under a name that exists.
func TestManifestInS3IsNeverReplaced(t *testing.T) {
	backend := newBucket(t)
	put(t, backend, "c/a", []byte("a"))
	s := open(t, "s3://lab/c")
	m, err := Create(t.Context(), s, Header{}, true)
	if err != nil {
		t.Fatal(err)
	}
	_, digest, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	put(t, backend, "c/"+Name(digest), []byte("of someone else"))
	if _, err := m.Write(t.Context(), s); err == nil {
		t.Error("an existing object was replaced")
	}
}

// TestObjectsThatChange checks that Create refuses objects that are written meanwhile, and empty prefixes.
func TestObjectsThatChange(t *testing.T) {
	backend := newBucket(t)
	s := open(t, "s3://lab/c")
	if _, err := Create(t.Context(), s, Header{}, true); !errors.Is(err, ErrEmpty) {
		t.Errorf("an empty prefix: %v", err)
	}
	put(t, backend, "c/a", []byte("one"))
	before, err := s.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put(t, backend, "c/a", []byte("two"))
	if err := unchanged(t.Context(), s, before); !errors.Is(err, ErrChanged) {
		t.Errorf("an object of the same size: %v", err)
	}
}

// TestS3WithoutCredentials checks the messages, and that the credentials of the host are not looked for.
func TestS3WithoutCredentials(t *testing.T) {
	newBucket(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	if _, err := Open("s3://lab/c"); !errors.Is(err, ErrNoCredentials) {
		t.Errorf("%v, want %v", err, ErrNoCredentials)
	}
	t.Setenv("AWS_ENDPOINT_URL", "store.example")
	if _, err := Open("s3://lab/c"); err == nil || !strings.Contains(err.Error(), "AWS_ENDPOINT_URL \"store.example\": want https://HOST") {
		t.Errorf("an endpoint without a scheme: %v", err)
	}
}

// TestRefusedCredentials checks that an error of S3 about the credentials differs from others.
func TestRefusedCredentials(t *testing.T) {
	newBucket(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"))
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	s, err := Open("s3://lab/a1-1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Create(t.Context(), s, Header{Job: 5, Attempt: 1}, true)
	if !errors.Is(err, ErrCredentials) || !strings.Contains(err.Error(), "S3 refused the credentials: s3://lab/a1-1/: Access Denied.") {
		t.Errorf("the bucket cannot be listed: %v", err)
	}
}

// TestCredentialsFile checks which files of credentials are accepted. A key that names a program runs nothing.
func TestCredentialsFile(t *testing.T) {
	newBucket(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	ran := filepath.Join(t.TempDir(), "ran")
	file := filepath.Join(t.TempDir(), "credentials")
	for text, want := range map[string]string{
		"[default]\naws_access_key_id = id\naws_secret_access_key = key\n":                  "",
		"[other]\naws_access_key_id = id\naws_secret_access_key = key\n":                    "no aws_access_key_id",
		"[default]\ncredential_process = touch " + ran + "\n":                               "no aws_access_key_id",
		"[default]\nsource_profile = x\n[x]\ncredential_process = /bin/touch " + ran + "\n": "no aws_access_key_id",
		strings.Repeat("#", maxCredentials+1):                                               "has more than 65536 bytes",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(CredentialsVariable, file)
		if _, err := Open("s3://lab/c"); want == "" && err != nil || want != "" && (!errors.Is(err, ErrNoCredentials) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	t.Setenv(CredentialsVariable, "/dev/zero")
	if _, err := Open("s3://lab/c"); !errors.Is(err, ErrForeign) {
		t.Errorf("/dev/zero: %v", err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program of the file was run")
	}
}
