package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newCheckpoint makes a directory with files of these sizes, and commits it.
func newCheckpoint(t testing.TB, withHashes bool, sizes map[string]int) (dir string, digest [32]byte) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "c")
	r := rand.NewChaCha8([32]byte{1})
	for name, size := range sizes {
		content := make([]byte, size)
		_, _ = r.Read(content) // never fails
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, commit(t, dir, withHashes)
}

func commit(t testing.TB, dir string, withHashes bool) [32]byte {
	t.Helper()
	root := open(t, dir)
	step := int64(7)
	m, err := Create(t.Context(), root, Header{Job: 12, Attempt: 2, Step: &step, Piece: testPiece}, withHashes)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := m.Write(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func open(t testing.TB, dir string) Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// large spans three pieces.
const large = 2*testPiece + 3

const testPiece = 2 << 20

var shards = map[string]int{"model/shard-0": large, "model/shard-1": 1000, "optimizer.pt": 5, "empty": 0}

// theManifest stands for the only manifest of a checkpoint.
const theManifest = "MANIFEST"

// pathOf returns the path of a file of a checkpoint.
func pathOf(t *testing.T, dir, name string) string {
	t.Helper()
	if name != theManifest {
		return filepath.Join(dir, name)
	}
	found, err := filepath.Glob(filepath.Join(dir, namePrefix+"*"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0]
}

// pipe replaces a file of a checkpoint by a named pipe.
func pipe(name string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		path := pathOf(t, dir, name)
		if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// edit returns a function that changes the text of a file.
func edit(name string, change func([]byte) []byte) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		path := pathOf(t, dir, name)
		text, err := os.ReadFile(path)
		if err := errors.Join(err, os.WriteFile(path, change(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// remove returns a function that removes a file or directory.
func remove(name string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		if err := os.RemoveAll(pathOf(t, dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// flip returns a function that changes one bit.
func flip(at int) func([]byte) []byte {
	return func(text []byte) []byte { text[at] ^= 1; return text }
}

// TestVerify finds each damage of a checkpoint, in whole and in the shares of three hosts.
func TestVerify(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string // "": valid
	}{
		"unchanged": {func(*testing.T, string) {}, ""},
		"another time": {func(_ *testing.T, dir string) {
			os.Chtimes(filepath.Join(dir, "empty"), time.Unix(1, 0), time.Unix(1, 0))
		}, ""},
		"a file more": {func(_ *testing.T, dir string) { os.WriteFile(filepath.Join(dir, "log"), nil, 0o644) }, ""},
		"one bit":     {edit("model/shard-0", flip(testPiece+9)), "model/shard-0: 1 of 3 pieces differ"},
		"two files": {func(t *testing.T, dir string) {
			edit("optimizer.pt", flip(0))(t, dir)
			edit("model/shard-1", flip(0))(t, dir)
		}, "model/shard-1: 1 of 1 pieces differ; optimizer.pt: 1 of 1 pieces differ"},
		"shorter": {edit("optimizer.pt", func(b []byte) []byte { return b[:4] }), "optimizer.pt: 4 bytes, want 5"},
		"missing": {remove("empty"), "empty: does not exist"},
		"a link": {func(_ *testing.T, dir string) {
			os.Remove(filepath.Join(dir, "empty"))
			os.Symlink("/etc/passwd", filepath.Join(dir, "empty"))
		}, "empty: not a regular file"},
		"no manifest":         {remove(theManifest), "MANIFEST does not exist"},
		"manifest is a pipe":  {pipe(theManifest), "MANIFEST: MANIFEST: not a regular file"},
		"file is a pipe":      {pipe("empty"), "empty: not a regular file"},
		"a torn manifest":     {edit(theManifest, func(b []byte) []byte { return b[:len(b)/2] }), "MANIFEST: not a manifest of a checkpoint: incomplete or altered"},
		"an altered manifest": {edit(theManifest, func(b []byte) []byte { return bytes.Replace(b, []byte(`"size":5`), []byte(`"size":4`), 1) }), "MANIFEST: not a manifest of a checkpoint: incomplete or altered"},
		"another commit":      {func(t *testing.T, dir string) { commit(t, dir, false) }, ""},
		"removed": {func(t *testing.T, dir string) {
			remove("")(t, dir)
			os.WriteFile(filepath.Join(dir, "../other"), nil, 0o644)
		}, "the directory does not exist"},
		"its folder is empty":   {remove(""), "openat"},
		"no directory above it": {func(t *testing.T, dir string) { remove("..")(t, dir) }, "openat"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, digest := newCheckpoint(t, true, shards)
			c.change(t, dir)
			_, err := Verify(t.Context(), dir, digest, All)
			var d *Damage
			switch isDamage := errors.As(err, &d); {
			case c.want == "openat":
				if err == nil || isDamage {
					t.Errorf("damage for an unreadable file system: %v", err)
				}
				return
			case c.want == "" && err != nil, c.want != "" && (!isDamage || strings.ReplaceAll(d.Text, Name(digest), theManifest) != c.want):
				t.Errorf("%v, want %q", err, c.want)
			}
			inShares(t, dir, digest, c.want)
		})
	}
}

// inShares checks that three hosts together find the same damage.
func inShares(t *testing.T, dir string, digest [32]byte, want string) {
	t.Helper()
	var parts []string
	for i := range 3 {
		if _, err := Verify(t.Context(), dir, digest, Share{i, 3}); err != nil {
			parts = append(parts, strings.ReplaceAll(err.Error(), Name(digest), theManifest))
		}
	}
	for _, one := range strings.Split(want, "; ") {
		if !strings.Contains(strings.Join(parts, "; "), one) || (want == "") != (len(parts) == 0) {
			t.Errorf("three shares found %q, want %q", parts, want)
		}
	}
}

// TestCreate refuses what must not be committed, and gives equal manifests for equal content.
func TestCreate(t *testing.T) {
	dir, digest := newCheckpoint(t, true, shards)
	if again := commit(t, dir, true); again != digest {
		t.Error("a second commit has another digest")
	}
	if sizes := commit(t, dir, false); sizes == digest {
		t.Error("a commit without hashes has the same digest")
	}
	sum := exec.Command("sha256sum", filepath.Join(dir, "optimizer.pt"))
	if out, err := sum.Output(); err == nil {
		commit(t, dir, true)
		text, err := os.ReadFile(filepath.Join(dir, Name(digest)))
		if err != nil || !strings.Contains(string(text), `"pieces":["`+string(out[:64])+`"]`) {
			t.Errorf("sha256sum says %s, the manifest %s: %v", out, text, err)
		}
	}
	for name, c := range map[string]struct {
		make func(dir string) error
		want error
	}{
		"empty":                 {func(string) error { return nil }, ErrEmpty},
		"link out":              {func(dir string) error { return os.Symlink("/etc", filepath.Join(dir, "etc")) }, ErrForeign},
		"named pipe":            {func(dir string) error { return exec.Command("mkfifo", filepath.Join(dir, "pipe")).Run() }, ErrForeign},
		"name that is no UTF-8": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "mod\xe8le"), nil, 0o644) }, ErrName},
		"only the manifest":     {func(dir string) error { return os.WriteFile(filepath.Join(dir, Name([32]byte{})), []byte("x"), 0o644) }, ErrEmpty},
		"file that goes away":   {func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), make([]byte, 9), 0o644) }, ErrChanged},
		"file that is replaced": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), make([]byte, 9), 0o644) }, ErrChanged},
		"another file":          {func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), make([]byte, 9), 0o644) }, ErrChanged},
		"file that is growing":  {func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), make([]byte, 9), 0o644) }, ErrChanged},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			root := open(t, dir)
			create := func() error { _, err := Create(t.Context(), root, Header{}, true); return err }
			if errors.Is(c.want, ErrChanged) {
				create = func() error { return changing(t, root, dir, name) }
			}
			if err := create(); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// changing changes a file between the listing of a directory and the end of its hashing: the state that Create
// compares at its end.
func changing(t *testing.T, s Store, dir, how string) error {
	t.Helper()
	before, err := s.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	switch path := filepath.Join(dir, "a"); how {
	case "file that is growing":
		err = os.WriteFile(path, make([]byte, 10), 0o644)
	case "file that goes away":
		err = os.Remove(path)
	case "file that is replaced":
		err = errors.Join(os.WriteFile(path+".new", make([]byte, 9), 0o644), os.Chtimes(path+".new", time.Now(), time.Unix(1, 0)), os.Rename(path+".new", path))
	default:
		err = os.WriteFile(path+"2", nil, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return unchanged(t.Context(), s, before)
}

// FuzzDecode reads arbitrary texts: they are refused or are manifests whose paths stay in the directory.
func FuzzDecode(f *testing.F) {
	m := Manifest{Header: Header{Format: format, Hash: sizesOnly, Files: 1, Bytes: 3, Piece: pieceSize}, List: []File{{Path: "a/b", Size: 3}}}
	text, _, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, path := range []string{"../b", "/b", "a//b", "", "."} {
		m.List[0].Path = path
		text, _, _ := m.encode()
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, digest, err := decode(text)
		if err != nil {
			return
		}
		for _, file := range m.List {
			if !filepath.IsLocal(file.Path) || file.Path == "." {
				t.Errorf("path %q", file.Path)
			}
		}
		if body, _, _ := cutLastLine(text); sha256.Sum256(body) != digest {
			t.Error("wrong digest")
		}
	})
}

// BenchmarkHash hashes a checkpoint of 512 MiB in one file. Compare its MB/s with those of sha256sum, which uses
// one core.
func BenchmarkHash(b *testing.B) {
	dir, _ := newCheckpoint(b, false, map[string]int{"model": 512 << 20})
	root := open(b, dir)
	b.Run("checkpoint", func(b *testing.B) {
		b.SetBytes(512 << 20)
		for b.Loop() {
			if _, err := Create(b.Context(), root, Header{}, true); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sha256sum", func(b *testing.B) {
		b.SetBytes(512 << 20)
		for b.Loop() {
			if err := exec.Command("sha256sum", filepath.Join(dir, "model")).Run(); err != nil {
				b.Skip("no sha256sum here: ", err)
			}
		}
	})
}
