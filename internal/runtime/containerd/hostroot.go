//go:build linux

package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A host task has a clone of the host's file system as its root, since
// pivot_root(2) refuses the real one. The clone is a slave: what the host
// mounts later appears in it where the host's mounts are shared, and what a
// task mounts never appears on the host. It lies in a folder that is an
// unbindable mount, so that no clone, of this node or of another on the same
// machine, ever contains a clone.

// holder returns the unbindable directory. It contains only the clone, since nothing in it can be
// bound into a task.
func holder(stateDir string) string { return filepath.Join(stateDir, "host") }

// hostRoot returns the path of the clone.
func hostRoot(stateDir string) string { return filepath.Join(holder(stateDir), "root") }

// mountHostRoot creates a new clone. Running tasks keep theirs, which lives on in their mount
// namespaces.
func mountHostRoot(stateDir string) error {
	if err := unmountHostRoot(stateDir); err != nil {
		return err
	}
	steps := []struct {
		source, target string
		flags          uintptr
	}{
		{holder(stateDir), holder(stateDir), unix.MS_BIND},
		{"", holder(stateDir), unix.MS_UNBINDABLE},
		{"/", hostRoot(stateDir), unix.MS_BIND | unix.MS_REC},
		{"", hostRoot(stateDir), unix.MS_SLAVE | unix.MS_REC},
	}
	for _, step := range steps {
		if err := os.MkdirAll(step.target, 0o700); err != nil {
			return fmt.Errorf("host root: %w", err)
		}
		if err := unix.Mount(step.source, step.target, "", step.flags, ""); err != nil {
			return fmt.Errorf("host root: mount %q on %s: %w", step.source, step.target, err)
		}
	}
	return nil
}

// unmountHostRoot removes the clone with the mount that holds it.
func unmountHostRoot(stateDir string) error {
	// Detach also removes the clone below it, even if a process uses it.
	if err := unmountOurs(holder(stateDir)); err != nil {
		return fmt.Errorf("host root: %w", err)
	}
	return nil
}

// unmountOurs removes an unbindable mount, repeatedly if earlier daemons created several.
func unmountOurs(point string) error {
	for {
		mounts, err := mountTable()
		if err != nil {
			return err
		}
		if !slices.Contains(mounts, hostMount{point: point, unbindable: true}) {
			return nil
		}
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
}

// hostMount is the relevant data of one mount.
type hostMount struct {
	point      string
	unbindable bool
}

// mountTable returns this process's mounts in the order of their creation.
func mountTable() ([]hostMount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(data)), nil
}

// parseMounts parses mountinfo (proc(5)): field 5 is the mount point with octal escapes; fields 7
// up to a dash are the propagation.
func parseMounts(text string) []hostMount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []hostMount
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 6 {
			continue
		}
		mounts = append(mounts, hostMount{
			point:      unescape.Replace(fields[4]),
			unbindable: slices.Contains(fields[6:dash], "unbindable"),
		})
	}
	return mounts
}
