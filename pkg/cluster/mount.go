package cluster

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Mount is a bind mount of a file or directory of the node into the container of a job with an image. The
// node opens the source with the permissions of the job's user.
type Mount struct {
	Source, Target string // absolute paths
	ReadOnly       bool
}

// Bounds of the mounts of a job, in number and in bytes.
const (
	maxMounts     = 64
	maxMountsText = 16 << 10
)

// systemFolders are directories of an image on which no job may mount: the task's runtime uses them. gnoded has
// a stricter rule for directories that it mounts without being asked.
var systemFolders = []string{"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "usr", "tmp", "var"}

// String is the mount as the option --mount has it.
func (m Mount) String() string {
	text := m.Source + ":" + m.Target
	if m.ReadOnly {
		text += ":ro"
	}
	return text
}

// Check returns an error for paths that cannot be mounted in an image.
func (m Mount) Check() error {
	for _, p := range []string{m.Source, m.Target} {
		if !path.IsAbs(p) || len(p) > maxText || strings.ContainsFunc(p, UnsafeToDisplay) || !utf8.ValidString(p) {
			return fmt.Errorf("mount %.200q: source and target must be absolute paths of at most %d bytes without control characters", m.String(), maxText)
		}
	}
	clean := path.Clean(m.Target)
	first, rest, _ := strings.Cut(clean[1:], "/")
	switch {
	case clean == "/":
		return fmt.Errorf("mount %.200q: cannot mount over / of the image", m.String())
	case first == "opt" && rest == "", slices.Contains(systemFolders, first):
		return fmt.Errorf("mount %.200q: cannot mount over /%s of the image; choose a target such as /data", m.String(), first)
	}
	return nil
}

// checkMounts checks the mounts: valid, with different targets, and only with an image.
func (s *JobSpec) checkMounts(fault func(string, ...any)) {
	if len(s.Mounts) > 0 && s.Image == "" {
		fault("mounts require an image: without one the job already sees the node's file system")
	}
	if len(s.Mounts) > maxMounts {
		fault("%d mounts, at most %d", len(s.Mounts), maxMounts)
		return
	}
	size := 0
	for i, m := range s.Mounts {
		if err := m.Check(); err != nil {
			fault("%v", err)
		}
		size += len(m.Source) + len(m.Target)
		if slices.ContainsFunc(s.Mounts[:i], func(o Mount) bool { return path.Clean(o.Target) == path.Clean(m.Target) }) {
			fault("two mounts have the target %.200q", m.Target)
		}
	}
	if size > maxMountsText {
		fault("the paths of the mounts have %d bytes, at most %d", size, maxMountsText)
	}
}
