package image

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/greylag/greylag/internal/image/ociimage"
)

// describe formats a Reference as testdata/references.txt does.
func describe(r Reference, err error) string {
	if err != nil {
		_, cause, _ := strings.Cut(err.Error(), "\": ")
		if i := strings.LastIndex(cause, ": "); i >= 0 {
			cause = cause[i+2:]
		}
		return "error " + cause
	}
	text := map[ReferenceKind]string{Registry: "registry", Archive: "archive", Layout: "layout"}[r.Kind] + " " + r.Name + r.Path
	if r.User != "" {
		text += " user " + r.User
	}
	if r.Select != "" {
		text += " select " + r.Select
	}
	return text
}

func TestParse(t *testing.T) {
	data, err := os.ReadFile("testdata/references.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		text, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " -> ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		if got := describe(Parse(text)); got != want {
			t.Errorf("%s -> %s, want %s", text, got, want)
		}
	}
}

// FuzzParse checks that a parsed reference is safe and parses to itself.
func FuzzParse(f *testing.F) {
	f.Add("docker://nvcr.io/nvidia/pytorch:24.01-py3")
	f.Add("ann@nvcr.io#a/b@sha256:" + strings.Repeat("0", 64))
	f.Add("oci-archive:/a/../b.tar:x")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if r.Kind != Registry {
			if !filepath.IsAbs(r.Path) || filepath.Clean(r.Path) != r.Path || r.Name != "" {
				t.Errorf("%q: %+v", text, r)
			}
			return
		}
		again, err := Parse(r.Name)
		if err != nil || again.Name != r.Name || r.Domain() == "" || r.Path != "" {
			t.Errorf("%q: %+v, again %+v %v", text, r, again, err)
		}
		if strings.Contains(r.Name, "..") && !strings.Contains(text, "..") || strings.ContainsAny(r.Name, " \n\x00\\") {
			t.Errorf("%q: %q", text, r.Name)
		}
	})
}

func FuzzChoose(f *testing.F) {
	f.Add([]byte(`{"manifests":[{"digest":"sha256:`+strings.Repeat("a", 64)+`","annotations":{"org.opencontainers.image.ref.name":"x"}}]}`), "x")
	f.Add([]byte(`{}`), "")
	f.Fuzz(func(t *testing.T, data []byte, selected string) {
		digest, err := Choose(data, selected)
		if err != nil {
			if !errors.Is(err, ErrLayout) {
				t.Error(err)
			}
			return
		}
		if !sha256Form.MatchString(digest) {
			t.Errorf("digest %q", digest)
		}
	})
}

func hello() ociimage.Image {
	return ociimage.Image{Name: "hello", Files: []ociimage.File{
		{Path: "a/b/c", Mode: 0o644, Data: []byte("hello\n")}, {Path: "a/l", Mode: 0o777, Link: "b/c"},
	}}
}

// TestSource checks that an archive and its unpacked layout give the same digest as the build, and
// the same tar.
func TestSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	want, err := ociimage.WriteFile(path, hello())
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if again, err := ociimage.Build(&first, hello()); err != nil || again != want {
		t.Errorf("built twice: %s and %s, %v", want, again, err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	source := OpenArchive(file)
	defer source.Close()
	for _, selected := range []string{"", "hello"} {
		if got, err := source.Digest(selected); err != nil || got != want {
			t.Errorf("%q: %s, want %s, %v", selected, got, want, err)
		}
	}
	if _, err := source.Digest("other"); !errors.Is(err, ErrLayout) {
		t.Errorf("another: %v", err)
	}
	if err := source.WriteTar(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("not the same bytes: %v", err)
	}
	empty := t.TempDir()
	layout, err := OpenLayout(empty)
	if err != nil {
		t.Fatal(err)
	}
	defer layout.Close()
	if _, err := layout.Digest(""); !errors.Is(err, ErrLayout) {
		t.Errorf("an empty folder: %v", err)
	}
	if err := syscall.Mkfifo(filepath.Join(empty, "index.json"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := layout.Digest(""); !errors.Is(err, ErrLayout) {
		t.Errorf("a FIFO without a writer: %v", err)
	}
	if err := os.Remove(filepath.Join(empty, "index.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(empty, "index.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := layout.Digest(""); !errors.Is(err, ErrLayout) {
		t.Errorf("a link out of the folder: %v", err)
	}
	if err := layout.WriteTar(io.Discard); err != nil {
		t.Errorf("links are left out: %v", err)
	}
}
