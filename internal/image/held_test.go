package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/greylag/greylag/internal/image/ociimage"
)

// entry is a file of an archive.
type entry struct {
	name string
	data []byte
}

// entries returns those of the hello image: oci-layout, index.json, manifest, configuration, layer.
func entries(t *testing.T) (all []entry, digest string) {
	t.Helper()
	var built bytes.Buffer
	digest, err := ociimage.Build(&built, hello())
	for archive := tar.NewReader(&built); err == nil; {
		var header *tar.Header
		if header, err = archive.Next(); err == nil {
			var data []byte
			data, err = io.ReadAll(archive)
			all = append(all, entry{header.Name, data})
		}
	}
	if !errors.Is(err, io.EOF) || len(all) != 5 {
		t.Fatalf("%d entries, %v", len(all), err)
	}
	return all, digest
}

// sources returns the entries as an archive and as a directory.
func sources(t *testing.T, all []entry) []*Source {
	t.Helper()
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "x.tar"))
	archive := tar.NewWriter(file)
	for _, e := range all {
		at := filepath.Join(dir, "layout", e.name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, e.data, 0o644),
			archive.WriteHeader(&tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.data))}))
		_, failed := archive.Write(e.data)
		err = errors.Join(err, failed)
	}
	layout, failed := OpenLayout(filepath.Join(dir, "layout"))
	if err = errors.Join(err, failed, archive.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = layout.Close() })
	packed := OpenArchive(file)
	t.Cleanup(func() { _ = packed.Close() })
	return []*Source{packed, layout}
}

func linux(p ocispec.Platform) bool { return p.OS == "linux" }

// TestADigestAloneIsNoImage checks that the named content must be present.
func TestADigestAloneIsNoImage(t *testing.T) {
	all, digest := entries(t)
	const manifest, config, layer = 2, 3, 4
	other := entry{all[manifest].name, []byte(`{"schemaVersion":2}`)}
	for what, c := range map[string]struct {
		entries []entry
		held    bool
	}{
		"whole":                       {all, true},
		"without its layer":           {all[:layer], true}, // the import detects it
		"without the configuration":   {append(all[:config:config], all[layer]), false},
		"without the manifest":        {append(all[:manifest:manifest], all[config:]...), false},
		"with another manifest":       {append(append(all[:manifest:manifest], other), all[config:]...), false},
		"with nothing but index.json": {all[:manifest], false},
	} {
		for i, source := range sources(t, c.entries) {
			if got, err := source.Digest(""); err != nil || got != digest {
				t.Fatalf("%s: %s, %v", what, got, err)
			}
			if err := source.CheckHeld(digest, linux); (err == nil) != c.held || err != nil && !errors.Is(err, ErrLayout) {
				t.Errorf("%s, source %d: %v", what, i, err)
			}
		}
	}
}

// TestAnIndexOfPlatformsHoldsThoseThatRunHere checks that other platforms may be missing.
func TestAnIndexOfPlatformsHoldsThoseThatRunHere(t *testing.T) {
	all, digest := entries(t)
	foreign := "sha256:" + fmt.Sprintf("%064d", 7)
	for list, held := range map[string]bool{
		`{"digest":"` + digest + `","platform":{"os":"linux","architecture":"x"}},{"digest":"` + foreign + `","platform":{"os":"plan9","architecture":"x"}}`: true,
		`{"digest":"` + digest + `"},{"digest":"` + foreign + `","platform":{"os":"linux","architecture":"y"}}`:                                              false,
		`{"digest":"` + digest + `"},{"digest":"` + foreign + `"}`:                                                                                           false,
	} {
		platforms := []byte(`{"schemaVersion":2,"manifests":[` + list + `]}`)
		sum := ociimage.Digest(platforms)
		for i, source := range sources(t, append(all[:5:5], entry{"blobs/sha256/" + sum[len("sha256:"):], platforms})) {
			if err := source.CheckHeld(sum, linux); (err == nil) != held {
				t.Errorf("%s, source %d: %v", list, i, err)
			}
		}
	}
}
