//go:build linux

package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/greylag/greylag/internal/runtime"
)

// systemTops are file systems that every task in an image has separately.
var systemTops = []string{"/dev", "/proc", "/sys"}

// maxImageLinks is the number of links after which a path counts as a loop, as in the kernel.
const maxImageLinks = 40

// checkImage mounts the task's snapshot read-only and checks where the OCI runtime would mount.
// Nothing else can change what is checked: the snapshot belongs to root, the layers below it never
// change, and no process of the task exists yet. The user's own folders are no part of the snapshot,
// so no mount point may lie inside one: see view.nest.
func (r *Runtime) checkImage(spec *runtime.Spec, rootfs []*types.Mount, oci *specs.Spec) (err error) {
	place := filepath.Join(holder(r.config.StateDir), spec.ID.String()+".root")
	if err := os.MkdirAll(place, 0o700); err != nil {
		return fmt.Errorf("check image: %w", err)
	}
	var mounts []mount.Mount
	for _, m := range rootfs {
		mounts = append(mounts, mount.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: readOnly(m.Options)})
	}
	defer func() {
		err = errors.Join(err, mount.UnmountMounts(mounts, place, 0), os.Remove(place))
	}()
	if err := mount.All(mounts, place); err != nil {
		return fmt.Errorf("check image: %w", err)
	}
	if err := checkTargets(place, spec, oci.Mounts); err != nil {
		return fmt.Errorf("image %s: %w", spec.Image, err)
	}
	return nil
}

// readOnly returns mount options with ro in place of rw.
func readOnly(options []string) []string {
	return append(slices.DeleteFunc(slices.Clone(options), func(o string) bool { return o == "rw" }), "ro")
}

// checkTargets refuses an image whose symbolic links redirect a mount. The OCI runtime follows links of
// the image: a user's folder mounted on / or /dev, or /dev mounted inside a user's folder, would let
// the user replace the program that the task runs first as root. Other mounts, such as the host's
// /etc/resolv.conf, may follow links that are usual in images, but not into a folder of the user.
func checkTargets(root string, spec *runtime.Spec, mounts []specs.Mount) error {
	var users []string
	for _, m := range spec.Mounts {
		users = append(users, filepath.Clean(m.Target))
	}
	if spec.PrivateTmp {
		users = append(users, tmpTops...)
	}
	image := imageRoot{root: root, covers: append(slices.Clone(systemTops), users...)}
	for _, m := range mounts {
		target := filepath.Clean(m.Destination)
		real, link, err := image.resolve(target)
		if err != nil {
			return err
		}
		own := slices.Contains(users, target)
		switch {
		case slices.Contains(tmpTops, target) && slices.Contains(tmpTops, real): // /var/tmp may be a link to /tmp
		case link != nil && (own || isWithin(target, systemTops...)):
			return fmt.Errorf("%s is a symbolic link to %s; a directory cannot be mounted over it: %w", link.path, link.text, runtime.ErrInvalid)
		case !own && link != nil && (isWithin(real, users...) || isWithin(real, systemTops...) || real == "/"):
			return fmt.Errorf("%s is a symbolic link to %s, where %s cannot be mounted: %w", link.path, link.text, target, runtime.ErrInvalid)
		case !own && isWithin(target, users...):
			return fmt.Errorf("%s is inside a directory that the job mounts: %w", target, runtime.ErrInvalid)
		}
	}
	return nil
}

// imageLink is a symbolic link of an image.
type imageLink struct{ path, text string }

// imageRoot is the file system of an image, mounted at root. Paths below a cover do not belong to the
// image once the task runs.
type imageRoot struct {
	root   string
	covers []string
}

// resolve returns the resolved path inside the image and the first symbolic link on it, or nil. Names
// that do not exist resolve to themselves: the OCI runtime makes folders there.
func (i *imageRoot) resolve(path string) (real string, first *imageLink, err error) {
	names, here, links := strings.Split(path, "/"), "/", 0
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if name == "" || name == "." {
			continue
		}
		covered := isWithin(here, i.covers...)
		if covered && name == ".." {
			return "", nil, fmt.Errorf("%s: a symbolic link passes through %s: %w", path, here, runtime.ErrInvalid)
		}
		if covered || name == ".." {
			here = filepath.Join(here, name)
			continue
		}
		next := filepath.Join(here, name)
		info, err := os.Lstat(filepath.Join(i.root, next)) // no part of here is a link
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			here = next
			continue
		}
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w: %w", next, err, runtime.ErrInvalid)
		}
		text, err := os.Readlink(filepath.Join(i.root, next))
		if err != nil {
			return "", nil, err
		}
		if first == nil {
			first = &imageLink{next, text}
		}
		if links++; links > maxImageLinks {
			return "", nil, fmt.Errorf("%s: too many symbolic links: %w", path, runtime.ErrInvalid)
		}
		if filepath.IsAbs(text) {
			here = "/"
		}
		names = append(strings.Split(text, "/"), names...)
	}
	return here, first, nil
}
