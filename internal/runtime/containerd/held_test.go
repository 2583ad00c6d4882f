//go:build linux

package containerd

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/image"
	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/internal/runtime"
)

// TestAnImageOfAnotherUserNeedsMoreThanItsDigest checks that an archive that only names an image of
// the store is refused.
func TestAnImageOfAnotherUserNeedsMoreThanItsDigest(t *testing.T) {
	needContainers(t)
	r := newRuntime(t, nil)
	built := must(ociimage.Unix())(t)
	built.WorkDir = "/tmp"
	dir := home(t)
	whole, named := filepath.Join(dir, "whole.tar"), filepath.Join(dir, "named.tar")
	digest := must(ociimage.WriteFile(whole, built))(t)
	fetch := func(path string) error {
		_, err := r.Fetch(t.Context(), runtime.FetchRequest{Reference: "oci-archive:" + path, Owner: runtime.Owner{UID: 1000, GID: 1000}})
		return err
	}
	if err := fetch(whole); err != nil {
		t.Fatal(err)
	}
	var forged bytes.Buffer
	archive := tar.NewWriter(&forged)
	for name, text := range map[string]string{
		"oci-layout": `{"imageLayoutVersion":"1.0.0"}`,
		"index.json": `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + digest + `","size":1}]}`,
	} {
		must(0, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))(t)
		must(archive.Write([]byte(text)))(t)
	}
	must(0, errors.Join(archive.Close(), os.WriteFile(named, forged.Bytes(), 0o644)))(t)
	if err := fetch(named); !errors.Is(err, image.ErrLayout) || !strings.Contains(err.Error(), "does not hold "+digest) {
		t.Errorf("an archive that only names the image: %v", err)
	}
	if err := fetch(whole); err != nil {
		t.Errorf("the whole image, again: %v", err)
	}
}
