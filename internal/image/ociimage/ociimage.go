// Package ociimage builds small OCI images as archives from files. Tests and the demo use it, so
// that they never pull.
//
// The same input gives the same bytes and digest: no times, fixed order, no compression.
package ociimage

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
)

// Image describes the image to build.
type Image struct {
	Files []File
	// Name is the tag in the index; empty for none.
	Name string
	// The other fields are the image's configuration.
	Env        []string
	Entrypoint []string
	Cmd        []string
	WorkDir    string
}

// File is one entry of the root file system. Missing parent directories are created for root with
// mode 0755.
type File struct {
	Path string
	Mode int64  // permissions, with 0o1000 for sticky
	Data []byte // content of a regular file
	Link string // target of a symbolic link
	Dir  bool   // a directory
}

// Build writes the archive and returns the digest of the image's manifest.
func Build(w io.Writer, image Image) (digest string, err error) {
	layer, err := layerOf(image.Files)
	if err != nil {
		return "", err
	}
	layerDigest := Digest(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": image.Env, "Entrypoint": image.Entrypoint, "Cmd": image.Cmd, "WorkingDir": image.WorkDir},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerDigest}},
	})
	if err != nil {
		return "", fmt.Errorf("image configuration: %w", err)
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": descriptor("application/vnd.oci.image.config.v1+json", config),
		"layers": []any{descriptor("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	if err != nil {
		return "", fmt.Errorf("image manifest: %w", err)
	}
	entry := descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
	if image.Name != "" {
		entry["annotations"] = map[string]string{"org.opencontainers.image.ref.name": image.Name}
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{entry}})
	if err != nil {
		return "", fmt.Errorf("image index: %w", err)
	}
	archive := tar.NewWriter(w)
	err = errors.Join(
		put(archive, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		put(archive, "index.json", index),
		put(archive, blobPath(manifest), manifest),
		put(archive, blobPath(config), config),
		put(archive, blobPath(layer), layer),
		archive.Close(),
	)
	return Digest(manifest), err
}

// WriteFile builds the image into a new file.
func WriteFile(name string, image Image) (digest string, err error) {
	file, err := os.Create(name)
	if err != nil {
		return "", fmt.Errorf("image archive: %w", err)
	}
	digest, err = Build(file, image)
	return digest, errors.Join(err, file.Close())
}

// layerOf returns the root file system as an uncompressed tar.
func layerOf(files []File) ([]byte, error) {
	files = slices.SortedStableFunc(slices.Values(withFolders(files)), func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, file := range files {
		header := &tar.Header{Name: file.Path, Mode: file.Mode, Typeflag: tar.TypeReg, Size: int64(len(file.Data))}
		switch {
		case file.Dir:
			header.Typeflag, header.Name, header.Size = tar.TypeDir, file.Path+"/", 0
		case file.Link != "":
			header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, file.Link, 0
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("image layer: %w", err)
		}
		if header.Typeflag == tar.TypeReg {
			if _, err := archive.Write(file.Data); err != nil {
				return nil, fmt.Errorf("image layer: %w", err)
			}
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("image layer: %w", err)
	}
	return buffer.Bytes(), nil
}

// withFolders adds missing parent directories.
func withFolders(files []File) []File {
	named := map[string]bool{}
	for _, file := range files {
		named[file.Path] = true
	}
	all := slices.Clone(files)
	for _, file := range files {
		for dir := path.Dir(file.Path); dir != "." && dir != "/" && !named[dir]; dir = path.Dir(dir) {
			named[dir] = true
			all = append(all, File{Path: dir, Mode: 0o755, Dir: true})
		}
	}
	return all
}

func put(archive *tar.Writer, name string, data []byte) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
		return fmt.Errorf("image archive: %w", err)
	}
	if _, err := archive.Write(data); err != nil {
		return fmt.Errorf("image archive: %w", err)
	}
	return nil
}

// Digest returns the digest of a blob, sha256:HEX.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func blobPath(data []byte) string {
	sum := sha256.Sum256(data)
	return "blobs/sha256/" + hex.EncodeToString(sum[:])
}

func descriptor(mediaType string, data []byte) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": Digest(data), "size": len(data)}
}
