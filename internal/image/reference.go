// Package image parses how users name images, and reads OCI layouts on disk.
//
// It decides from the text and the files alone. It never contacts a registry and never unpacks: the
// runtime does.
package image

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/distribution/reference"
)

var (
	// ErrReference means that a text does not name an image.
	ErrReference = errors.New("not an image reference")
	// ErrSquashFS means that a text names a SquashFS file. Mounting one from a user would pass
	// untrusted bytes to the kernel.
	ErrSquashFS = errors.New("SquashFS images are not supported; use an oci-archive")
)

// ReferenceKind is the source of an image.
type ReferenceKind int

// The kinds of Reference.
const (
	Registry ReferenceKind = iota + 1 // pulled
	Archive                           // a tar file with an OCI layout
	Layout                            // a directory with an OCI layout
)

// Reference is a parsed image name.
type Reference struct {
	Kind ReferenceKind
	// Name is the full registry reference ("docker.io/library/busybox:1.36", or with
	// "@sha256:…"); empty for the other kinds.
	Name string
	// Path is absolute; empty for a Registry.
	Path string
	// User is the registry user that the reference names, pyxis' USER@REGISTRY#IMAGE.
	User string
	// Select is the tag or name inside an archive or layout ("oci:/dir:TAG").
	Select string
}

var (
	tagForm  = regexp.MustCompile(`^[\w][\w.-]{0,127}$`) // of an image on disk
	userForm = regexp.MustCompile(`^[\w.$+-]{1,255}$`)
)

// maxReference bounds what is parsed: the longest name, tag and digest.
const maxReference = 1024

// Parse understands "docker://IMAGE", a bare IMAGE, pyxis' "USER@REGISTRY#IMAGE",
// "oci-archive:/file.tar[:TAG]", "oci:/folder[:TAG]" and an absolute path, which
// is an archive if it ends in ".tar" and a layout otherwise, also with a TAG. O(length).
func Parse(text string) (Reference, error) {
	if len(text) > maxReference || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return Reference{}, fmt.Errorf("%.80q: %w", text, ErrReference)
	}
	scheme, rest, _ := strings.Cut(text, ":") // of a path, what stands before its tag
	switch {
	case strings.HasSuffix(text, ".sqsh"), strings.HasSuffix(text, ".squashfs"), strings.HasSuffix(text, ".sif"):
		return Reference{}, fmt.Errorf("%.80q: %w", text, ErrSquashFS)
	case scheme == "oci-archive":
		return onDisk(text, rest, Archive)
	case scheme == "oci":
		return onDisk(text, rest, Layout)
	case strings.HasPrefix(text, "/") && strings.HasSuffix(scheme, ".tar"):
		return onDisk(text, text, Archive)
	case strings.HasPrefix(text, "/"):
		return onDisk(text, text, Layout)
	case strings.HasPrefix(text, "docker://"):
		return inRegistry(text, strings.TrimPrefix(text, "docker://"))
	case strings.Contains(text, "://"):
		return Reference{}, fmt.Errorf("%.80q: want docker://, oci-archive: or oci: %w", text, ErrReference)
	}
	return inRegistry(text, text)
}

func onDisk(text, rest string, kind ReferenceKind) (Reference, error) {
	path, tag, tagged := strings.Cut(rest, ":")
	if !filepath.IsAbs(path) || tagged && !tagForm.MatchString(tag) {
		return Reference{}, fmt.Errorf("%.80q: want an absolute path: %w", text, ErrReference)
	}
	return Reference{Kind: kind, Path: filepath.Clean(path), Select: tag}, nil
}

func inRegistry(text, rest string) (Reference, error) {
	bad := fmt.Errorf("%.80q: %w", text, ErrReference)
	r := Reference{Kind: Registry}
	if host, name, pyxis := strings.Cut(rest, "#"); pyxis {
		if at := strings.LastIndexByte(host, '@'); at >= 0 {
			r.User, host = host[:at], host[at+1:]
			if !userForm.MatchString(r.User) {
				return Reference{}, bad
			}
		}
		rest = host + "/" + name
	}
	named, err := reference.ParseDockerRef(rest) // a digest makes the tag irrelevant
	if err != nil {
		return Reference{}, bad
	}
	r.Name = named.String()
	registry, err := url.Parse("https://" + r.Domain())
	if err != nil {
		return Reference{}, bad
	}
	if _, err := strconv.ParseUint(cmp.Or(registry.Port(), "443"), 10, 16); err != nil {
		return Reference{}, bad
	}
	return r, nil
}

// Domain returns the host of the registry, to look up its credentials; empty for images on disk.
func (r Reference) Domain() string {
	domain, _, _ := strings.Cut(r.Name, "/")
	return domain
}
