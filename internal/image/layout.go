package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"syscall"
)

// ErrLayout means that a file or directory does not hold an OCI layout.
var ErrLayout = errors.New("not an OCI image layout")

// maxIndex is the maximum size of index.json, manifests and configurations: enough for thousands of
// images.
const maxIndex = 4 << 20

// Source is an open image on disk. The caller must close it.
type Source struct {
	file *os.File // an archive
	root *os.Root // or a layout
}

// OpenArchive returns a source for a regular file.
func OpenArchive(file *os.File) *Source { return &Source{file: file} }

// OpenLayout opens an image in a directory. The call and all uses of the Source must run with the
// identity of the user who named the directory.
func OpenLayout(folder string) (*Source, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	return &Source{root: root}, nil
}

// Close closes the file or directory.
func (s *Source) Close() error {
	if s.root != nil {
		return s.root.Close()
	}
	return s.file.Close()
}

// Digest returns the digest of the image's manifest, or of its own index of platforms, without
// reading its layers. ErrLayout if there is no index.json, as in an archive of docker save.
func (s *Source) Digest(selected string) (string, error) {
	index, err := s.index()
	if err != nil {
		return "", err
	}
	return Choose(index, selected)
}

// index returns index.json.
func (s *Source) index() ([]byte, error) {
	data, err := s.read("index.json")
	if err != nil {
		return nil, fmt.Errorf("image: %w: %w", ErrLayout, err)
	}
	return data, nil
}

// open opens a regular file of the layout. It never blocks on a FIFO.
func (s *Source) open(name string) (*os.File, fs.FileInfo, error) {
	file, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxIndex+1))
	if err == nil && len(data) > maxIndex {
		err = fmt.Errorf("a file above %d bytes: %w", maxIndex, ErrLayout)
	}
	return data, err
}

// WriteTar writes the layout as a tar: an archive unchanged, a directory with its regular files
// only.
func (s *Source) WriteTar(w io.Writer) error {
	if s.root == nil {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("image: %w", err)
		}
		if _, err := io.Copy(w, s.file); err != nil {
			return fmt.Errorf("image: %w", err)
		}
		return nil
	}
	archive := tar.NewWriter(w)
	err := fs.WalkDir(s.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !partOfLayout(name) {
			return err
		}
		return s.writeFile(archive, name)
	})
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return archive.Close()
}

// partOfLayout reports whether the specification of the layout names the file.
func partOfLayout(name string) bool {
	return name == "index.json" || name == "oci-layout" || strings.HasPrefix(name, "blobs/")
}

func (s *Source) writeFile(archive *tar.Writer, name string) error {
	file, info, err := s.open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.CopyN(archive, file, info.Size())
	return err
}

// index is the used part of index.json (github.com/opencontainers/image-spec, image-index).
type index struct {
	Manifests []struct {
		Digest      string            `json:"digest"`
		Annotations map[string]string `json:"annotations"`
	} `json:"manifests"`
}

var sha256Form = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Choose returns the image of an index.json with the name selected; without a name, the only or
// first one.
func Choose(indexJSON []byte, selected string) (digest string, err error) {
	var parsed index
	if err := json.Unmarshal(indexJSON, &parsed); err != nil {
		return "", fmt.Errorf("index.json: %w: %w", ErrLayout, err)
	}
	for _, manifest := range parsed.Manifests {
		name := manifest.Annotations["org.opencontainers.image.ref.name"]
		full := manifest.Annotations["io.containerd.image.name"]
		if selected != "" && name != selected && full != selected && !strings.HasSuffix(full, ":"+selected) {
			continue
		}
		if !sha256Form.MatchString(manifest.Digest) {
			return "", fmt.Errorf("index.json: digest %.80q: %w", manifest.Digest, ErrLayout)
		}
		return manifest.Digest, nil
	}
	if selected != "" {
		return "", fmt.Errorf("index.json: no image %q: %w", selected, ErrLayout)
	}
	return "", fmt.Errorf("index.json: no image: %w", ErrLayout)
}
