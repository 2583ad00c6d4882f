package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxDepth limits nested indexes.
const maxDepth = 4

// manifest is the used part of a manifest or of an index of platforms.
type manifest struct {
	Config    *ocispec.Descriptor  `json:"config"`
	Manifests []ocispec.Descriptor `json:"manifests"`
}

// CheckHeld returns nil if the image on disk holds the manifest with that digest and its configuration,
// or those of each platform that match accepts. The store of a node holds the images of all users, so
// a digest alone must not give access to one. The errors wrap ErrLayout.
func (s *Source) CheckHeld(digest string, match func(ocispec.Platform) bool) error {
	return s.checkHeld(digest, match, maxDepth)
}

func (s *Source) checkHeld(digest string, match func(ocispec.Platform) bool, depth int) error {
	if depth == 0 {
		return fmt.Errorf("image: indexes within indexes: %w", ErrLayout)
	}
	data, err := s.blob(digest)
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("image: manifest %s: %w: %w", digest, ErrLayout, err)
	}
	if m.Config != nil {
		if _, err := s.blob(m.Config.Digest.String()); err != nil {
			return err
		}
	}
	for _, d := range m.Manifests {
		if d.Platform != nil && !match(*d.Platform) {
			continue
		}
		if err := s.checkHeld(d.Digest.String(), match, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// blob returns a manifest or a configuration, whose content it checks against the digest.
func (s *Source) blob(digest string) ([]byte, error) {
	if !sha256Form.MatchString(digest) {
		return nil, fmt.Errorf("image: digest %.80q: %w", digest, ErrLayout)
	}
	data, err := s.read("blobs/sha256/" + strings.TrimPrefix(digest, "sha256:"))
	if err != nil {
		return nil, fmt.Errorf("image: it does not hold %s: %w: %w", digest, ErrLayout, err)
	}
	if sum := sha256.Sum256(data); "sha256:"+hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("image: the content of %s is another: %w", digest, ErrLayout)
	}
	return data, nil
}

// read returns a small file of the layout. It skips through an archive.
func (s *Source) read(name string) ([]byte, error) {
	if s.root != nil {
		file, _, err := s.open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return readBounded(file)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	for archive := tar.NewReader(s.file); ; {
		header, err := archive.Next()
		if err != nil {
			return nil, fmt.Errorf("no %s: %w", name, err)
		}
		if header.Typeflag == tar.TypeReg && path.Clean(header.Name) == name {
			return readBounded(archive)
		}
	}
}
