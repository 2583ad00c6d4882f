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

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/shim"
	"github.com/greylag/greylag/internal/userfile"
)

// tmpTops lists the private directories of a task.
var tmpTops = []string{"/tmp", "/var/tmp"}

// view describes the directories of the host that a task sees besides its root.
type view struct {
	mounts []runtime.Mount // with pinned sources
	links  []userfile.Link // symbolic links to create in the private /tmp and /var/tmp
	masked []string        // paths in the task that hold the node's own directories
	pins   []string
	shown  []shownFolder // in an image
}

// shownFolder is a directory of the host at path that a task with an image sees at target.
type shownFolder struct {
	target, path string
	readOnly     bool
}

// pinPlace returns where a mounted directory of a task is pinned during the start: a mount of its
// own next to the clone of the host's file system, hidden like it. Pins of a killed daemon are
// removed with the clone.
func pinPlace(stateDir string, id runtime.TaskID, i int) string {
	return filepath.Join(holder(stateDir), fmt.Sprintf("%s.%d", id, i))
}

// pin opens the sources of the mounts as the task's owner and keeps them open until unpin. The OCI
// runtime follows paths as root: a symbolic link that replaced a directory meanwhile would give it
// access to files that the owner may not access.
func (r *Runtime) pin(spec *runtime.Spec) (*view, error) {
	v := &view{}
	for i, m := range spec.Mounts {
		place := pinPlace(r.config.StateDir, spec.ID, i)
		var err error
		if spec.Image == "" && spec.PrivateTmp && isWithin(m.Target, tmpTops...) {
			err = v.showTmp(spec.Owner, m, place)
		} else {
			err = v.show(r, spec, m, place)
		}
		if err != nil {
			v.unpin()
			return nil, fmt.Errorf("task %s: mount %s: %w", spec.ID, m.Source, err)
		}
	}
	return v, nil
}

// unpin removes the pins. A started task keeps its mounts.
func (v *view) unpin() {
	for _, place := range v.pins {
		_ = unix.Unmount(place, unix.MNT_DETACH) // it may not be mounted
		_ = os.Remove(place)                     // an empty directory of ours is harmless
	}
}

// showTmp mounts a directory of the host's /tmp or /var/tmp at its resolved path. Symbolic links on
// the path are recreated in the task's own /tmp and so resolve to what the task sees at their
// target: a link to / leads to the task's root, never to the host's.
func (v *view) showTmp(owner runtime.Owner, m runtime.Mount, place string) error {
	var folder *userfile.Folder
	err := userfile.As(owner, func() (err error) {
		folder, err = userfile.OpenFolderBeneath(m.Source, tmpTops...)
		return err
	})
	switch {
	case errors.Is(err, userfile.ErrOutside):
		v.links = append(v.links, folder.Links...)
		return nil
	case errors.Is(err, fs.ErrNotExist) && m.Optional:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", runtime.ErrInvalid, err)
	}
	defer folder.Close()
	v.links = append(v.links, folder.Links...)
	within := func(other runtime.Mount) bool { return isWithin(folder.Path, other.Target) }
	if slices.Contains(tmpTops, folder.Path) || slices.ContainsFunc(v.mounts, within) {
		return nil // the task has its own, or sees the directory already
	}
	return v.bind(folder, runtime.Mount{Target: folder.Path, ReadOnly: m.ReadOnly}, place)
}

// show mounts a directory or file at the target. With an image, symbolic links on the host are
// followed, since the image does not have them.
func (v *view) show(r *Runtime, spec *runtime.Spec, m runtime.Mount, place string) error {
	if _, err := os.Lstat(m.Target); err != nil && spec.Image == "" {
		// The OCI runtime would create it, as root, on the host itself.
		return fmt.Errorf("%w: on %s: %w", runtime.ErrInvalid, m.Target, err)
	}
	var folder *userfile.Folder
	err := userfile.As(spec.Owner, func() (err error) {
		folder, err = userfile.OpenPath(m.Source)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) && m.Optional {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrInvalid, err)
	}
	defer folder.Close()
	own := r.config.hidden()
	if folder.Path == "/" || slices.Contains(tmpTops, folder.Path) || isWithin(folder.Path, append(own, "/dev")...) {
		return fmt.Errorf("%w: it resolves to the host's %s, which tasks may not see", runtime.ErrInvalid, folder.Path)
	}
	if spec.Image != "" {
		shown, err := v.nest(folder, &m)
		if shown || err != nil {
			return err
		}
	}
	for _, dir := range own {
		if isWithin(dir, folder.Path) {
			v.masked = append(v.masked, filepath.Join(m.Target, strings.TrimPrefix(dir, folder.Path)))
		}
	}
	return v.bind(folder, m, place)
}

// nest keeps mount points out of directories that are already mounted. The user could replace such
// a mount point by a link to / or /dev during the start, and the OCI runtime would follow it. A
// directory inside a mounted one is visible there. The target of a link in a mounted directory is
// mounted at its real path, where the task finds it through the same link.
func (v *view) nest(folder *userfile.Folder, m *runtime.Mount) (shown bool, err error) {
	m.Target = filepath.Clean(m.Target)
	for _, outer := range v.shown {
		rest, ok := below(m.Target, outer.target)
		switch {
		case !ok:
			continue
		case folder.Path == filepath.Join(outer.path, rest), filepath.Clean(m.Source) == m.Target && outer.path == outer.target && isWithin(folder.Path, outer.path):
			if m.ReadOnly && !outer.readOnly {
				return false, fmt.Errorf("%w: %s is inside %s, which the job may write: choose a target outside it", runtime.ErrInvalid, m.Target, outer.target)
			}
			return true, nil
		case filepath.Clean(m.Source) != m.Target:
			return false, fmt.Errorf("%w: %s is inside the mounted directory %s", runtime.ErrInvalid, m.Target, outer.target)
		}
		m.Target = folder.Path
		if slices.ContainsFunc(v.shown, func(other shownFolder) bool { return isWithin(m.Target, other.target) }) {
			return false, fmt.Errorf("%w: %s is inside a mounted directory", runtime.ErrInvalid, m.Target)
		}
		break
	}
	v.shown = append(v.shown, shownFolder{m.Target, folder.Path, m.ReadOnly})
	return false, nil
}

// bind pins an open directory or file at place. A descriptor does not suffice: the OCI runtime
// mounts inside the task's mount namespace, where a mount of this one cannot be the source. Other
// mounts in the directory are visible too, except if a link led to it.
func (v *view) bind(folder *userfile.Folder, m runtime.Mount, place string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(folder.FD, &stat); err != nil {
		return userFault(err)
	}
	var err error
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.MkdirAll(place, 0o700)
	} else {
		err = os.WriteFile(place, nil, 0o600)
	}
	if err != nil {
		return err
	}
	v.pins = append(v.pins, place)
	flags := uintptr(unix.MS_BIND)
	if len(folder.Links) == 0 {
		flags |= unix.MS_REC
	}
	if err := unix.Mount(userfile.Proc(folder.FD), place, "", flags, ""); err != nil {
		return userFault(err)
	}
	if m.ReadOnly {
		if err := makeReadOnly(folder, place); err != nil {
			return userFault(err)
		}
	}
	// A slave, so that its removal does not remove mounts below the directory.
	if err := unix.Mount("", place, "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return err
	}
	m.Source = place
	v.mounts = append(v.mounts, m)
	return nil
}

// makeReadOnly makes a pin and the mounts below it read-only; the OCI runtime does so for the top one only.
// Kernels before 5.12 cannot, and leave the mounts below out.
func makeReadOnly(folder *userfile.Folder, place string) error {
	err := unix.MountSetattr(unix.AT_FDCWD, place, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if errors.Is(err, unix.ENOSYS) {
		err = errors.Join(unix.Unmount(place, unix.MNT_DETACH), unix.Mount(userfile.Proc(folder.FD), place, "", unix.MS_BIND, ""))
	}
	return err
}

// userFault marks a mount that the kernel refuses because of the user's path, for example a
// directory of an unbindable mount. A lack of memory is a node fault.
func userFault(err error) error {
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOSPC) {
		return err
	}
	return fmt.Errorf("%w: it cannot be mounted into a task: %w", runtime.ErrInvalid, err)
}

// makeLinks creates the links and mount points of the view in the private directories of a task, in
// dir. The links are the user's: nothing is created through one that leads out of the private
// directory.
func (v *view) makeLinks(dir string) error {
	for i, name := range []string{"tmp", "var"} {
		root, err := os.OpenRoot(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("private folders: %w", err)
		}
		for _, link := range v.links {
			if path, ok := below(link.Path, tmpTops[i]); ok && err == nil {
				err = makeLink(root, path, link)
			}
		}
		for _, m := range v.mounts {
			if path, ok := below(m.Target, tmpTops[i]); ok && err == nil {
				err = makeFolders(root, path)
			}
		}
		if err := errors.Join(err, root.Close()); err != nil {
			return fmt.Errorf("%w: directories below %s changed while the task started: %w", runtime.ErrInvalid, tmpTops[i], err)
		}
	}
	return nil
}

// makeLink creates a link with the owner of the one on the host.
func makeLink(root *os.Root, path string, link userfile.Link) error {
	if err := makeFolders(root, filepath.Dir(path)); err != nil {
		return err
	}
	err := root.Symlink(link.Text, path)
	if errors.Is(err, fs.ErrExist) { // another path has the same link
		return nil
	}
	if err != nil {
		return err
	}
	return root.Lchown(path, int(link.UID), int(link.GID))
}

// makeFolders creates path and its parents, which every user may enter.
func makeFolders(root *os.Root, path string) error {
	if path == "." {
		return nil
	}
	if err := makeFolders(root, filepath.Dir(path)); err != nil {
		return err
	}
	err := root.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		info, err := root.Lstat(path)
		if err == nil && !info.IsDir() { // the OCI runtime would follow it
			err = &fs.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR}
		}
		return err
	}
	if err != nil {
		return err
	}
	return root.Chmod(path, 0o755) // independent of the umask
}

// hidden returns the node's own directories, which no task may see.
func (c *Config) hidden() []string {
	return append([]string{c.StateDir, c.ScratchDir, shim.SocketDir}, c.Hidden...)
}

// isWithin reports whether path is one of folders or below one.
func isWithin(path string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		_, ok := below(path, folder)
		return ok
	})
}

// below returns path relative to folder.
func below(path, folder string) (string, bool) {
	path, folder = filepath.Clean(path), filepath.Clean(folder)
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(folder, "/")+"/")
	if path == folder {
		return ".", true
	}
	return rest, ok
}
